"""The client capabilities that the gateway declares to servers."""

from itertools import product

import pytest

from gateway.contract import Json
from gateway.upstream.conversation import LISTING_CAPABILITIES, capability_names, forwarded_capabilities


@pytest.mark.parametrize(
    ("supplied", "names", "forwarded"),
    [
        ({}, set(), {}),
        (LISTING_CAPABILITIES, {"roots", "sampling", "elicitation", "form", "url"}, LISTING_CAPABILITIES),
        ({"elicitation": {}}, {"elicitation"}, {"elicitation": {}}),
        ({"sampling": {"tools": {}}}, {"sampling", "tools"}, {"sampling": {"tools": {}}}),
        ({"roots": {"listChanged": True}}, {"roots"}, {"roots": {}}),
        ({"extensions": {"a/b": {"c": 1}}}, {"extensions"}, {"extensions": {"a/b": {"c": 1}}}),
        ({"form": {}, "x1": {}, "experimental": {"y": {}}, "tasks": {}}, set(), {}),
        ({"elicitation": {"form": 7, "mine": {}}}, {"elicitation", "form"}, {"elicitation": {"form": {}}}),
    ],
)
def test_only_forwarded_client_capabilities_are_declared_to_servers(
    supplied: Json, names: set[str], forwarded: Json
) -> None:
    assert capability_names(supplied) == names
    assert forwarded_capabilities(supplied) == forwarded


@pytest.mark.parametrize("malformed", [1, "form", ["form"], [{}], None, True, 1.5])
def test_capability_that_is_not_an_object_is_ignored(malformed: object) -> None:
    for name in ("elicitation", "sampling", "roots", "extensions"):
        assert capability_names({name: malformed}) == frozenset()
        assert forwarded_capabilities({name: malformed}) == {}


def test_invented_capabilities_do_not_multiply_the_sets_of_capability_names() -> None:
    names = ("roots", "sampling", "elicitation", "form", "url", "tools", "tasks", "experimental", "x")
    capabilities = [
        {name: {f"{n}": {}} for name, included in zip(names, bits, strict=True) if included}
        for n, bits in enumerate(product((False, True), repeat=len(names)))
    ]
    assert len({capability_names(each) for each in capabilities}) == 8
