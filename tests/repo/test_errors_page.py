"""The documented errors match the error table of the code."""

import re
from pathlib import Path

from gateway.cli import failure
from gateway.errors import TABLE, Fault, Kind
from tests.repo.documents import ROOT

PAGE = ROOT / "docs" / "errors.md"


def rows(path: Path) -> dict[str, list[str]]:
    """Return the table rows that begin with a kind, by kind."""
    found = re.findall(r"^\| `(\w+)` \|(.+)\|$", path.read_text("utf-8"), re.MULTILINE)
    kinds = {kind.value for kind in Kind}
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in found if name in kinds}


def test_errors_page_lists_every_kind_with_its_codes() -> None:
    expected = {
        kind.value: [
            str(row.http),
            str(row.handshake),
            str(row.modern),
            "yes" if row.retryable else "no",
            row.category,
        ]
        for kind, row in TABLE.items()
    }
    assert rows(PAGE) == expected


def test_errors_page_lists_every_field_of_the_error_object() -> None:
    details = {"validation_path": "a", "validation_rule": "b", "payload_bytes": 2, "max_bytes": 1}
    fault = Fault(Kind.INTERNAL, "It failed.", details=details, suggested_fix="Do so.", retry_after=1)
    fields = fault.as_object(correlation_id="1", origin="gateway", stage="edge", codes={})
    table = PAGE.read_text("utf-8").partition("## The kinds")[0]
    assert set(fields) <= set(re.findall(r"`(\w+)`", table))


def test_errors_page_lists_the_exit_codes_of_the_command() -> None:
    words = " ".join(PAGE.read_text("utf-8").partition("## Exit codes")[2].split())
    codes = {
        failure.FAILED: "when it failed",
        failure.BAD_SETTINGS: "when settings or arguments are wrong",
        failure.UNAUTHENTICATED: "when the credential is not accepted",
        failure.UNREACHABLE: "when the gateway cannot be reached",
        failure.CALL_FAILED: "when the call was answered with an error",
    }
    assert [f"{code} {meaning}" in words for code, meaning in codes.items()] == [True] * len(codes)
