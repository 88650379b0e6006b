"""The input of the gates, loaded once per validation, and the findings that they return."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from backends.launch.paths import is_safe
from backends.launch.serialization import digest
from backends.launch.workers.context import WorkerContext
from backends.launch.workers.frontmatter import body_of
from gateway.contract import Json

Severity = Literal["info", "warn", "error", "blocker"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem found by a gate."""

    code: str
    message: str
    severity: Severity = "error"
    path: str | None = None
    """Relative to the worktree for a page; relative to the run's folder for an artifact (`artifacts/...`)."""
    line: int | None = None
    suggested_fix: str | None = None

    def as_issue(self, gate: str) -> Json:
        key = "|".join((gate, self.code, self.path or "", self.message))
        issue: Json = {
            "issue_id": f"iss_{digest(key.encode())[:12]}",
            "gate": gate,
            "severity": self.severity,
            "message": self.message,
            "status": "OPEN",
            "error_code": self.code,
        }
        if self.path is not None:
            location = self.path if self.path.startswith("artifacts/") else f"work/site/{self.path}"
            issue["files"] = [location]
            issue["location"] = {"path": location} if self.line is None else {"path": location, "line": self.line}
        if self.suggested_fix is not None:
            issue["suggested_fix"] = self.suggested_fix
        return issue


class GateContext:
    """A run's worktree and artifacts. Each artifact is read at most once."""

    def __init__(self, worker: WorkerContext) -> None:
        self.worker = worker
        self.config = worker.config
        self.profile: str = worker.config.get("validation_profile", "local")
        self._line_counts: dict[str, int] = {}
        self.public: Path = worker.folder / "work" / "public"

    @cached_property
    def plan(self) -> list[Json]:
        return self.worker.read("page_plan.json")["pages"]

    @cached_property
    def pages(self) -> Mapping[str, str]:
        """The text of every planned page that exists, by path."""
        found = ((page["output_path"], self.worker.site / page["output_path"]) for page in self.plan)
        return {path: file.read_bytes().decode("utf-8", "replace") for path, file in found if file.is_file()}

    @cached_property
    def claims(self) -> dict[str, Json]:
        return {claim["claim_id"]: claim for claim in self.worker.read("evidence_map.json")["claims"]}

    @cached_property
    def facts(self) -> Json:
        return self.worker.read("product_facts.json")

    @cached_property
    def surface(self) -> Json:
        return self.worker.read("api_surface.json")

    @cached_property
    def model_pages(self) -> frozenset[str]:
        """The pages with a section that a model drafted. Its sentences need not repeat a claim word by word."""
        if not self.worker.has("model_sections.json"):
            return frozenset()
        return frozenset(key.partition("#")[0] for key in self.worker.read("model_sections.json")["sections"])

    @cached_property
    def snippets(self) -> list[Json]:
        return self.worker.read("snippet_catalog.json")["snippets"]

    def line_count(self, path: str) -> int:
        """Return the number of lines of a file of the product repository; 0 if it does not exist."""
        if path not in self._line_counts:
            file = self.worker.repo / path
            is_known = is_safe(path) and file.is_file()
            self._line_counts[path] = max(1, len(file.read_bytes().splitlines())) if is_known else 0
        return self._line_counts[path]

    def body(self, path: str) -> tuple[str, int]:
        """Return the text after the front matter and the number of lines before it."""
        page = self.pages[path]
        body = body_of(page)
        return body, page.count("\n") - body.count("\n")
