"""The conditions for a conforming run."""

import pytest

from tests.conformance.__main__ import REFERENCE, report
from tests.conformance.suite import Check

VERSION = "2026-07-28"


def _checks(passed: int, *others: str) -> list[Check]:
    return [Check("ping", "ping", status, "why") for status in ("SUCCESS",) * passed + others]


def test_run_with_the_reference_count_and_no_failure_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(VERSION, _checks(REFERENCE[VERSION], "INFO"))
    assert f"{REFERENCE[VERSION]} passed, 0 failed" in capsys.readouterr().out


def test_run_with_one_failure_does_not_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert not report(VERSION, _checks(REFERENCE[VERSION] + 1, "FAILURE"))
    assert "failure ping:ping: why" in capsys.readouterr().out


def test_warning_does_not_count_as_a_passed_check() -> None:
    assert not report(VERSION, _checks(REFERENCE[VERSION] - 1, "WARNING"))


def test_single_scenario_is_not_compared_with_the_reference_count() -> None:
    assert report(VERSION, _checks(2), "ping")
    assert not report(VERSION, _checks(0, "WARNING"), "ping")
    assert report(VERSION, [], "ping")
