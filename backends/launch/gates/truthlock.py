"""Every statement is cited, every citation holds, and nothing is claimed that the repository does not say."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.gates.context import Finding, Subject
from backends.launch.workers import markdown
from backends.launch.workers.facts import FORMATS
from gateway.contract import Json

_WORD: Final = re.compile(r"\b[A-Z0-9]{2,5}\b")
_NEVER_INFERRED: Final = re.compile(
    r"\b(format|security|secure|complian|gdpr|hipaa|performan|faster|fastest)", re.IGNORECASE
)


def check(subject: Subject) -> Iterator[Finding]:
    supported = {entry["format"] for entry in subject.facts["supported_formats"]}
    for path in subject.pages:
        text, above = subject.body(path)
        for line in markdown.lines(text):
            if not line.code:
                for finding in _line(subject, path, line, supported):
                    yield _below(finding, above)
    yield from _evidence(subject)


def report(subject: Subject, findings: list[Finding]) -> Json:
    """The truth lock report for these findings."""
    pages = [{"path": path, "claim_ids": markdown.MARKER.findall(text)} for path, text in sorted(subject.pages.items())]
    used = sorted({claim for page in pages for claim in page["claim_ids"]})
    inferred = [each for each in used if subject.claims.get(each, {}).get("truth_status") == "inference"]
    forbidden = [each for each in inferred if _forbidden(subject.claims[each])]
    return {
        "schema_version": "1.0",
        "ok": not any(finding.severity in ("error", "blocker") for finding in findings),
        "pages": pages,
        "unresolved_claim_ids": [each for each in used if each not in subject.claims],
        "inferred_claim_ids": inferred,
        "forbidden_inferred_claim_ids": forbidden,
        "issues": [finding.as_issue("truthlock")["issue_id"] for finding in findings],
    }


def _line(subject: Subject, path: str, line: markdown.Line, supported: set[str]) -> Iterator[Finding]:
    marks = markdown.MARKER.findall(line.text)
    said = markdown.MARKER.sub("", line.text).strip()
    for mark in marks:
        claim = subject.claims.get(mark)
        if claim is None:
            message = f"No evidence is known for claim {mark[:64]}."
            yield Finding("GATE_TRUTHLOCK_INVALID_CLAIM_ID", message, "blocker", path, line.number)
        elif claim["truth_status"] == "inference" and (not subject.config["allow_inference"] or _forbidden(claim)):
            message = f"The claim {mark[:12]} is an inference."
            yield Finding("GATE_TRUTHLOCK_INFERRED_CLAIM", message, "blocker", path, line.number)
        elif claim["claim_text"] not in said:
            message = f"The line does not say what claim {mark[:12]} says."
            yield Finding("GATE_TRUTHLOCK_CLAIM_MISMATCH", message, "blocker", path, line.number)
    if not marks and _factual(line.text):
        message = f"Uncited statement: {said[:120]}"
        yield Finding("GATE_TRUTHLOCK_UNCITED_FACT", message, "blocker", path, line.number)
    if not marks and not markdown.HEADING.match(line.text):
        for word in _WORD.findall(markdown.LINK.sub(r"\1", said)):
            if word in FORMATS and word not in supported:
                message = f"No evidence says that {word} is supported."
                yield Finding("GATE_TRUTHLOCK_UNSUPPORTED_FORMAT", message, "blocker", path, line.number)


def _factual(text: str) -> bool:
    """A bullet that is more than a link."""
    bullet = markdown.BULLET.match(text)
    return bullet is not None and markdown.LINK.fullmatch(bullet[1]) is None


def _forbidden(claim: Json) -> bool:
    return claim["claim_kind"] == "format" or _NEVER_INFERRED.search(claim["claim_text"]) is not None


def _below(finding: Finding, above: int) -> Finding:
    line = (finding.line or 1) + above
    return Finding(finding.code, finding.message, finding.severity, finding.path, line, finding.suggested_fix)


def _evidence(subject: Subject) -> Iterator[Finding]:
    """The cited lines are still there in the repository."""
    lengths: dict[str, int] = {}
    for claim in subject.claims.values():
        for cited in claim["citations"]:
            path = cited["path"]
            if path not in lengths:
                file = subject.bench.repo / path
                lengths[path] = len(file.read_bytes().splitlines()) if file.is_file() else 0
            if cited["end_line"] > lengths[path]:
                message = f"The evidence of claim {claim['claim_id'][:12]} is missing."
                yield Finding("GATE_TRUTHLOCK_EVIDENCE_MISSING", message, "blocker", "artifacts/evidence_map.json")
