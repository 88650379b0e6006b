"""Comparison of the conformance results of a cell."""

from pathlib import Path

import pytest

from tests.conformance.cells import CELLS, Difference, compare, find_problems, load_expected_failures
from tests.conformance.suite import Check


def _check(id: str, status: str = "SUCCESS", scenario: str = "s") -> Check:
    return Check(scenario, id, status, "")


def test_equal_checks_have_no_difference() -> None:
    checks = [_check("a"), _check("a"), _check("b", "INFO")]
    assert compare(checks, checks) == Difference(2, 2, (), ())
    assert find_problems(compare(checks, checks), {}) == []


def test_check_that_passes_less_often_is_lost_even_if_other_checks_pass() -> None:
    found = compare([_check("a"), _check("a")], [_check("a"), _check("b")])
    assert found.lost == ("s:a",)
    assert find_problems(found, {}) == ["lost s:a"]
    assert find_problems(found, {"s:a": "why it must be so"}) == []


def test_failure_only_through_the_gateway_is_added() -> None:
    found = compare([_check("a")], [_check("a"), _check("c", "WARNING")])
    assert find_problems(found, {}) == ["added s:c"]


def test_expected_failure_that_passes_is_stale() -> None:
    assert find_problems(compare([_check("a")], [_check("a")]), {"s:a": "why"}) == [
        "s:a is expected to fail but passes"
    ]


def test_every_expected_failure_is_in_a_cross_era_cell_and_has_a_reason(tmp_path: Path) -> None:
    assert load_expected_failures().keys() <= {cell.name for cell in CELLS}
    assert load_expected_failures().keys() == {"2025-11-25 over modern", "2026-07-28 over handshake"}
    bare = tmp_path / "expected.yaml"
    bare.write_text("2025-11-25 over modern:\n  s:a: because\n")
    with pytest.raises(ValueError, match="s:a has no reason"):
        load_expected_failures(bare)
