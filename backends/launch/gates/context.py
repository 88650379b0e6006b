"""What the gates look at, read once, and the findings they make of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from backends.launch.serialization import digest
from backends.launch.workers.context import Bench
from backends.launch.workers.frontmatter import body_of
from gateway.contract import Json

Severity = Literal["info", "warn", "error", "blocker"]


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    message: str
    severity: Severity = "error"
    path: str | None = None
    """Of a page: inside the worktree; of an artifact: inside the run's folder, with `artifacts/`."""
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
            where = self.path if self.path.startswith("artifacts/") else f"work/site/{self.path}"
            issue["files"] = [where]
            issue["location"] = {"path": where} if self.line is None else {"path": where, "line": self.line}
        if self.suggested_fix is not None:
            issue["suggested_fix"] = self.suggested_fix
        return issue


class Subject:
    """A run's worktree and artifacts."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.config = bench.config
        self.profile: str = bench.config.get("validation_profile", "local")
        self.public: Path = bench.folder / "work" / "public"

    @cached_property
    def plan(self) -> list[Json]:
        return self.bench.read("page_plan.json")["pages"]

    @cached_property
    def pages(self) -> Mapping[str, str]:
        """The text of every planned page that is there, by path."""
        found = ((page["output_path"], self.bench.site / page["output_path"]) for page in self.plan)
        return {path: file.read_bytes().decode("utf-8", "replace") for path, file in found if file.is_file()}

    @cached_property
    def claims(self) -> dict[str, Json]:
        return {claim["claim_id"]: claim for claim in self.bench.read("evidence_map.json")["claims"]}

    @cached_property
    def facts(self) -> Json:
        return self.bench.read("product_facts.json")

    @cached_property
    def snippets(self) -> list[Json]:
        return self.bench.read("snippet_catalog.json")["snippets"]

    def body(self, path: str) -> tuple[str, int]:
        """The text after the front matter, and how many lines precede it."""
        page = self.pages[path]
        body = body_of(page)
        return body, page.count("\n") - body.count("\n")
