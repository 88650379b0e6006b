"""What a test needs and this machine has not."""

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """No test, unless every test must run: then it fails."""
    if os.environ.get("GATEHOUSE_TESTS_NO_SKIP") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
