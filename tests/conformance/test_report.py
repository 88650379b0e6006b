"""What counts as a conforming run."""

import pytest

from tests.conformance.__main__ import REFERENCE, report
from tests.conformance.suite import Check

VERSION = "2026-07-28"


def _checks(passed: int, *others: str) -> list[Check]:
    return [Check("ping", "ping", status, "why") for status in ("SUCCESS",) * passed + others]


def test_as_many_checks_as_the_reference_and_no_failure_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(VERSION, _checks(REFERENCE[VERSION], "INFO"))
    assert f"{REFERENCE[VERSION]} passed, 0 failed" in capsys.readouterr().out


def test_one_failure_is_not_good_however_many_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert not report(VERSION, _checks(REFERENCE[VERSION] + 1, "FAILURE"))
    assert "failure ping:ping: why" in capsys.readouterr().out


def test_a_check_that_only_warns_leaves_the_run_short_of_the_reference() -> None:
    assert not report(VERSION, _checks(REFERENCE[VERSION] - 1, "WARNING"))


def test_a_single_scenario_is_not_held_to_the_whole_count() -> None:
    assert report(VERSION, _checks(2), "ping")
    assert not report(VERSION, _checks(0, "WARNING"), "ping")
    assert report(VERSION, [], "ping")
