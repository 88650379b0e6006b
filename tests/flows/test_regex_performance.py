"""No input makes a regular expression of the gateway slow."""

import importlib
import pkgutil
import re
from time import process_time
from typing import Any, Final

import pytest

import gateway

Matcher = Any

BUDGET: Final = 0.05
SEEDS: Final = (
    *"a0A -_.,:;=/\\%\"'+*~[]{}()\t\r\n\x00é\u2028",
    "a.", "a-", "a=", "a,", "a/", "a:", "0.", "0a", " \t", "=;", "%2", "${", "\\\"", "a@", "..", "//", "gth_",
)  # fmt: skip
ENDS: Final = ("", "!", "\n", "\x00", "=", "/")


def matchers() -> dict[str, Matcher]:
    """The match function of every module-level pattern in the gateway, by its qualified name."""
    found: dict[str, Matcher] = {}
    for info in pkgutil.walk_packages(gateway.__path__, "gateway."):
        if info.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, re.Pattern):
                found[f"{info.name}.{name}"] = value.fullmatch
            elif isinstance(getattr(value, "__self__", None), re.Pattern):
                found[f"{info.name}.{name}"] = value
    return found


MATCHERS: Final = matchers()


def slowest(matcher: Matcher) -> float:
    taken = 0.0
    # Short first: a pattern that backtracks exponentially is already slow on the short text.
    for length in (24, 9_000):
        for seed in SEEDS:
            for end in ENDS:
                text: Any = seed * (length // len(seed)) + end
                if isinstance(matcher.__self__.pattern, bytes):
                    text = text.encode()
                began = process_time()
                matcher(text)
                taken = max(taken, process_time() - began)
                if taken > BUDGET:
                    return taken
    return taken


def test_gateway_patterns_are_collected() -> None:
    assert len(MATCHERS) > 20


@pytest.mark.parametrize("where", MATCHERS)
def test_threat_22_no_gateway_pattern_backtracks(where: str) -> None:
    assert slowest(MATCHERS[where]) < BUDGET
