"""What a client can do, as far as servers are told."""

from itertools import product

import pytest

from gateway.contract import Json
from gateway.upstream.conversation import ABLE, abilities, carried


@pytest.mark.parametrize(
    ("said", "names", "told"),
    [
        ({}, set(), {}),
        (ABLE, {"roots", "sampling", "elicitation", "form", "url"}, ABLE),
        ({"elicitation": {}}, {"elicitation"}, {"elicitation": {}}),
        ({"sampling": {"tools": {}}}, {"sampling", "tools"}, {"sampling": {"tools": {}}}),
        ({"roots": {"listChanged": True}}, {"roots"}, {"roots": {}}),
        ({"extensions": {"a/b": {"c": 1}}}, {"extensions"}, {"extensions": {"a/b": {"c": 1}}}),
        ({"form": {}, "x1": {}, "experimental": {"y": {}}, "tasks": {}}, set(), {}),
        ({"elicitation": {"form": 7, "mine": {}}}, {"elicitation", "form"}, {"elicitation": {"form": {}}}),
    ],
)
def test_of_what_a_client_can_do_only_what_the_gateway_carries_is_told(said: Json, names: set[str], told: Json) -> None:
    assert abilities(said) == names
    assert carried(said) == told


@pytest.mark.parametrize("odd", [1, "form", ["form"], [{}], None, True, 1.5])
def test_an_ability_that_is_no_object_is_none(odd: object) -> None:
    for name in ("elicitation", "sampling", "roots", "extensions"):
        assert abilities({name: odd}) == frozenset()
        assert carried({name: odd}) == {}


def test_however_many_abilities_clients_invent_there_are_few_kinds_of_client() -> None:
    names = ("roots", "sampling", "elicitation", "form", "url", "tools", "tasks", "experimental", "x")
    invented = [
        {name: {f"{n}": {}} for name, there in zip(names, bits, strict=True) if there}
        for n, bits in enumerate(product((False, True), repeat=len(names)))
    ]
    assert len({abilities(each) for each in invented}) == 8
