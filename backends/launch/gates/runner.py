"""W7: runs the gates in order, each with a timeout, and writes the validation report. It does not change pages."""

import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from backends.launch.gates import (
    consistency,
    content,
    hugo,
    links,
    lint,
    rollback,
    schema,
    screenshots,
    snippets,
    tokens,
    truthlock,
)
from backends.launch.gates.context import Finding, GateContext
from backends.launch.serialization import pretty_json
from backends.launch.workers import baseline
from backends.launch.workers.context import WorkerContext
from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate with its timeouts for the local profile and for the other profiles."""

    name: str
    check: Callable[[GateContext], Iterable[Finding]]
    local_seconds: float
    ci_seconds: float

    def timeout(self, profile: str) -> float:
        return self.local_seconds if profile == "local" else self.ci_seconds


GATES: Final = (
    Gate("schema", schema.check, 30, 60),
    Gate("lint", lint.check, 60, 120),
    Gate("hugo_config", hugo.check_config, 10, 20),
    Gate("hugo_build", hugo.check_build, 300, 600),
    Gate("links", links.check, 120, 180),
    Gate("snippets", snippets.check, 60, 120),
    Gate("truthlock", truthlock.check, 60, 120),
    Gate("consistency", consistency.check, 30, 60),
    Gate("content", content.check, 60, 120),
    Gate("template_token_lint", tokens.check, 30, 60),
    Gate("rollback", rollback.check, 5, 10),
)
_SEVERITY_RANK: Final = {"blocker": 0, "error": 1, "warn": 2, "info": 3}


class _GateTimeout(Exception):
    pass


def run(worker: WorkerContext) -> None:
    context = GateContext(worker)
    # Computed before the gates run: a page that changes during validation must not count as validated.
    worktree_digest = baseline.tree_digest(worker)
    results: list[Json] = []
    issues: list[Json] = []
    for gate in GATES:
        worker.emit("GATE_RUN_STARTED", gate=gate.name)
        findings = run_gate(gate, context, gate.timeout(context.profile))
        found = [finding.as_issue(gate.name) for finding in findings]
        log = f"logs/gate_{gate.name}.json"
        worker.write_file(log, pretty_json(found), f"gate_{gate.name}.json")
        ok = not any(issue["severity"] in failing_severities(worker.config) for issue in found)
        results.append({"name": gate.name, "ok": ok, "log_path": log})
        worker.emit("GATE_RUN_FINISHED", gate=gate.name, ok=ok)
        issues.extend(found)
        if gate.name == "truthlock":
            worker.write("truth_lock_report.json", truthlock.report(context, findings))
    unique = {issue["issue_id"]: issue for issue in issues}
    if all(result["ok"] for result in results):
        screenshots.take(context)
    worker.write("validation_report.json", _report(context, results, sorted(unique.values(), key=issue_order)))
    worker.emit("WORKTREE_JUDGED", worktree_sha256=worktree_digest)


def run_gate(gate: Gate, context: GateContext, seconds: float) -> list[Finding]:
    """Return the findings of the gate. A timeout is reported as a finding."""
    try:
        with _alarm(seconds):
            return list(gate.check(context))
    except _GateTimeout:
        return [Finding("GATE_TIMEOUT", f"The gate {gate.name} took longer than {seconds:g} s.", "blocker")]


def failing_severities(config: Json) -> frozenset[str]:
    """Return the severities that fail a gate in the run's profile."""
    profile = config.get("validation_profile", "local")
    strict = profile == "prod" or (profile == "ci" and config.get("ci_strictness", "strict") == "strict")
    return frozenset({"blocker", "error", "warn"} if strict else {"blocker", "error"})


def issue_order(issue: Json) -> tuple[int, str, str, int, str]:
    """Sort key of issues, for lists and for fixes."""
    location = issue.get("location", {})
    severity = _SEVERITY_RANK[issue["severity"]]
    return severity, issue["gate"], location.get("path", ""), location.get("line", 0), issue["issue_id"]


def _report(context: GateContext, gates: list[Json], issues: list[Json]) -> Json:
    edited = consistency.manually_edited(context)
    report: Json = {
        "schema_version": "1.0",
        "ok": all(gate["ok"] for gate in gates),
        "profile": context.profile,
        "gates": gates,
        "issues": issues,
        "manual_edits": bool(edited),
    }
    return {**report, "manual_edited_files": edited} if edited else report


@contextmanager
def _alarm(seconds: float) -> Generator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise _GateTimeout

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
