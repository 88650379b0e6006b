"""W7: run the gates in order, each within its time, and write the report. The worktree is only read."""

import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from backends.launch.gates import consistency, hugo, links, lint, rollback, schema, snippets, tokens, truthlock
from backends.launch.gates.context import Finding, Subject
from backends.launch.serialization import pretty
from backends.launch.workers import baseline
from backends.launch.workers.context import Bench
from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    check: Callable[[Subject], Iterable[Finding]]
    local: float
    ci: float

    def seconds(self, profile: str) -> float:
        return self.local if profile == "local" else self.ci


GATES: Final = (
    Gate("schema", schema.check, 30, 60),
    Gate("lint", lint.check, 60, 120),
    Gate("hugo_config", hugo.check_config, 10, 20),
    Gate("hugo_build", hugo.check_build, 300, 600),
    Gate("links", links.check, 120, 180),
    Gate("snippets", snippets.check, 60, 120),
    Gate("truthlock", truthlock.check, 60, 120),
    Gate("consistency", consistency.check, 30, 60),
    Gate("template_token_lint", tokens.check, 30, 60),
    Gate("rollback", rollback.check, 5, 10),
)
_ORDER: Final = {"blocker": 0, "error": 1, "warn": 2, "info": 3}


class _TimeIsUp(Exception):
    pass


def run(bench: Bench) -> None:
    subject = Subject(bench)
    # Before the gates look: a page that changes while they do must not count as judged.
    judged = baseline.tree_digest(bench)
    results: list[Json] = []
    issues: list[Json] = []
    for gate in GATES:
        bench.say("GATE_RUN_STARTED", gate=gate.name)
        findings = look(gate, subject, gate.seconds(subject.profile))
        found = [finding.as_issue(gate.name) for finding in findings]
        log = f"logs/gate_{gate.name}.json"
        bench.leave(log, pretty(found), f"gate_{gate.name}.json")
        ok = not any(issue["severity"] in failing(bench.config) for issue in found)
        results.append({"name": gate.name, "ok": ok, "log_path": log})
        bench.say("GATE_RUN_FINISHED", gate=gate.name, ok=ok)
        issues.extend(found)
        if gate.name == "truthlock":
            bench.write("truth_lock_report.json", truthlock.report(subject, findings))
    unique = {issue["issue_id"]: issue for issue in issues}
    bench.write("validation_report.json", _report(subject, results, sorted(unique.values(), key=order)))
    bench.say("WORKTREE_JUDGED", worktree_sha256=judged)


def look(gate: Gate, subject: Subject, seconds: float) -> list[Finding]:
    """What the gate finds; running past its time is a finding too."""
    try:
        with _alarm(seconds):
            return list(gate.check(subject))
    except _TimeIsUp:
        return [Finding("GATE_TIMEOUT", f"The gate {gate.name} took longer than {seconds:g} s.", "blocker")]


def failing(config: Json) -> frozenset[str]:
    """The severities that fail a gate under the run's profile."""
    profile = config.get("validation_profile", "local")
    strict = profile == "prod" or (profile == "ci" and config.get("ci_strictness", "strict") == "strict")
    return frozenset({"blocker", "error", "warn"} if strict else {"blocker", "error"})


def order(issue: Json) -> tuple[int, str, str, int, str]:
    """The one order in which issues are listed and mended."""
    place = issue.get("location", {})
    severity = _ORDER[issue["severity"]]
    return severity, issue["gate"], place.get("path", ""), place.get("line", 0), issue["issue_id"]


def _report(subject: Subject, gates: list[Json], issues: list[Json]) -> Json:
    edited = consistency.edited_by_hand(subject)
    report: Json = {
        "schema_version": "1.0",
        "ok": all(gate["ok"] for gate in gates),
        "profile": subject.profile,
        "gates": gates,
        "issues": issues,
        "manual_edits": bool(edited),
    }
    return {**report, "manual_edited_files": edited} if edited else report


@contextmanager
def _alarm(seconds: float) -> Generator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise _TimeIsUp

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
