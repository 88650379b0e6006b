"""Gate `truthlock`: every statement cites a claim, and every cited claim has evidence in the repository."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.gates.context import Finding, GateContext
from backends.launch.workers import markdown
from backends.launch.workers.facts import FORMATS
from backends.launch.writers.grounding import is_grounded
from gateway.contract import Json

_FORMAT_WORD: Final = re.compile(r"\b[A-Z0-9]{2,5}\b")
_NEVER_INFERRED: Final = re.compile(
    r"\b(format|security|secure|complian|gdpr|hipaa|performan|faster|fastest)", re.IGNORECASE
)


def check(context: GateContext) -> Iterator[Finding]:
    supported = {entry["format"] for entry in context.facts["supported_formats"]}
    for path in context.pages:
        text, line_offset = context.body(path)
        for line in markdown.lines(text):
            if not line.is_code:
                for finding in _check_line(context, path, line, supported):
                    yield _shift_line(finding, line_offset)
    yield from _check_evidence(context)


def report(context: GateContext, findings: list[Finding]) -> Json:
    """Build the truth lock report for these findings."""
    pages = [{"path": path, "claim_ids": markdown.MARKER.findall(text)} for path, text in sorted(context.pages.items())]
    used = sorted({claim for page in pages for claim in page["claim_ids"]})
    inferred = [each for each in used if context.claims.get(each, {}).get("truth_status") == "inference"]
    forbidden = [each for each in inferred if _is_forbidden_inference(context.claims[each])]
    return {
        "schema_version": "1.0",
        "ok": not any(finding.severity in ("error", "blocker") for finding in findings),
        "pages": pages,
        "unresolved_claim_ids": [each for each in used if each not in context.claims],
        "inferred_claim_ids": inferred,
        "forbidden_inferred_claim_ids": forbidden,
        "issues": [finding.as_issue("truthlock")["issue_id"] for finding in findings],
    }


def _check_line(context: GateContext, path: str, line: markdown.Line, supported: set[str]) -> Iterator[Finding]:
    claim_ids = markdown.MARKER.findall(line.text)
    statement = markdown.MARKER.sub("", line.text).strip()
    for claim_id in claim_ids:
        claim = context.claims.get(claim_id)
        if claim is None:
            message = f"No evidence is known for claim {claim_id[:64]}."
            yield Finding("GATE_TRUTHLOCK_INVALID_CLAIM_ID", message, "blocker", path, line.number)
        elif claim["truth_status"] == "inference" and (
            not context.config["allow_inference"] or _is_forbidden_inference(claim)
        ):
            message = f"The claim {claim_id[:12]} is an inference."
            yield Finding("GATE_TRUTHLOCK_INFERRED_CLAIM", message, "blocker", path, line.number)
        elif claim["claim_text"].casefold() not in statement.casefold() and not _is_paraphrase(
            context, path, statement, claim_ids
        ):
            message = f"The line does not say what claim {claim_id[:12]} says."
            yield Finding("GATE_TRUTHLOCK_CLAIM_MISMATCH", message, "blocker", path, line.number)
    if claim_ids or not _is_statement(statement):
        return
    if (exists := _source_exists(context, statement)) is not None:
        if not exists:
            message = f"The repository has no such source: {statement[:120]}"
            yield Finding("GATE_TRUTHLOCK_EVIDENCE_MISSING", message, "blocker", path, line.number)
        return
    unsupported = [
        name
        for name in _FORMAT_WORD.findall(markdown.LINK.sub(r"\1", statement))
        if name in FORMATS and name not in supported and not markdown.BULLET.match(line.text)
    ]
    for format_name in unsupported:
        message = f"No evidence says that {format_name} is supported."
        yield Finding("GATE_TRUTHLOCK_UNSUPPORTED_FORMAT", message, "blocker", path, line.number)
    if not unsupported:
        message = f"Uncited statement: {statement[:120]}"
        yield Finding("GATE_TRUTHLOCK_UNCITED_FACT", message, "blocker", path, line.number)


def _is_paraphrase(context: GateContext, path: str, statement: str, claim_ids: list[str]) -> bool:
    """Whether a sentence of a model says nothing beyond the claims that it cites."""
    if path not in context.model_pages:
        return False
    texts = [context.claims[each]["claim_text"] for each in claim_ids if each in context.claims]
    return is_grounded(statement.removeprefix("- "), texts, context.facts["product_name"])


def _is_statement(text: str) -> bool:
    """Whether the line says something: not a heading, a list of links or the head of a table."""
    bullet = markdown.BULLET.match(text)
    said = bullet[1] if bullet else text
    is_head = text.startswith("| Parameter |") or text == "| Parameter |" or re.fullmatch(r"[|\s:-]+", text) is not None
    is_name = re.fullmatch(r"`[^`]+`", said) is not None and bullet is not None
    has_words = re.search(r"\w", markdown.LINK.sub("", said)) is not None
    return has_words and not markdown.HEADING.match(text) and not is_head and not is_name


def _source_exists(context: GateContext, text: str) -> bool | None:
    """Whether the source that the line names exists; None if the line is not a source line."""
    found = re.fullmatch(r"Source: (?:\[`([^`]+):(\d+)`\]\(([^)]*)\)|`([^`]+):(\d+)`)", text)
    if found is None:
        return None
    path, number = found[1] or found[4], int(found[2] or found[5])
    repository = context.config["github_repo_url"].removesuffix(".git").rstrip("/") + "/"
    in_repository = found[3] is None or found[3].startswith(repository)
    return in_repository and 0 < number <= context.line_count(path)


def _is_forbidden_inference(claim: Json) -> bool:
    return claim["claim_kind"] == "format" or _NEVER_INFERRED.search(claim["claim_text"]) is not None


def _shift_line(finding: Finding, line_offset: int) -> Finding:
    line = (finding.line or 1) + line_offset
    return Finding(finding.code, finding.message, finding.severity, finding.path, line, finding.suggested_fix)


def _check_evidence(context: GateContext) -> Iterator[Finding]:
    """Check that the cited lines still exist in the repository."""
    for claim in context.claims.values():
        for cited in claim["citations"]:
            if cited["end_line"] > context.line_count(cited["path"]):
                message = f"The evidence of claim {claim['claim_id'][:12]} is missing."
                yield Finding("GATE_TRUTHLOCK_EVIDENCE_MISSING", message, "blocker", "artifacts/evidence_map.json")
