"""When a cell of the conformance table is good."""

from pathlib import Path

import pytest

from tests.conformance.cells import CELLS, Difference, compare, expected, verdict
from tests.conformance.suite import Check


def _check(id: str, status: str = "SUCCESS", scenario: str = "s") -> Check:
    return Check(scenario, id, status, "")


def test_the_same_checks_are_no_difference() -> None:
    checks = [_check("a"), _check("a"), _check("b", "INFO")]
    assert compare(checks, checks) == Difference(2, 2, (), ())
    assert verdict(compare(checks, checks), {}) == []


def test_a_check_that_passes_less_often_is_lost_also_when_others_pass_in_its_place() -> None:
    found = compare([_check("a"), _check("a")], [_check("a"), _check("b")])
    assert found.lost == ("s:a",)
    assert verdict(found, {}) == ["lost s:a"]
    assert verdict(found, {"s:a": "why it must be so"}) == []


def test_a_failure_that_is_not_there_direct_is_added() -> None:
    found = compare([_check("a")], [_check("a"), _check("c", "WARNING")])
    assert verdict(found, {}) == ["added s:c"]


def test_a_reason_that_is_no_longer_needed_is_stale() -> None:
    assert verdict(compare([_check("a")], [_check("a")]), {"s:a": "why"}) == ["s:a is expected to fail, and passes"]


def test_every_expected_failure_is_of_a_cell_between_eras_and_has_a_reason(tmp_path: Path) -> None:
    assert expected().keys() <= {cell.name for cell in CELLS}
    assert expected().keys() == {"2025-11-25 over modern", "2026-07-28 over handshake"}
    bare = tmp_path / "expected.yaml"
    bare.write_text("2025-11-25 over modern:\n  s:a: because\n")
    with pytest.raises(ValueError, match="s:a has no reason"):
        expected(bare)
