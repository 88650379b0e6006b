"""Limits on depth, number of members and string length of arguments."""

from typing import Any

import pytest

from gateway.contract import Call, Json, Result
from gateway.errors import Fault, Kind
from gateway.stages.validate import Validate
from tests.gateway.fakes import a_call


async def end(call: Call) -> Result:
    return {}


def nested(depth: int) -> Json:
    value: Any = 1
    for _ in range(depth - 1):
        value = [value]
    return {"a": value}


@pytest.mark.parametrize(
    ("arguments", "exceeded"),
    [
        (nested(8), None),
        (nested(9), "depth"),
        ({"a": [0] * 99}, None),
        ({"a": [0] * 100}, "members"),
        ({"a": {str(n): [0] * 9 for n in range(10)}}, "members"),
        ({"a": "x" * 50}, None),
        ({"a": "x" * 51}, "text"),
        ({"a": ["x" * 51]}, "text"),
        ({"a": {"x" * 51: 1}}, "text"),
        ({}, None),
    ],
)
async def test_threat_23_arguments_above_depth_member_or_length_limits_are_rejected(
    arguments: Json, exceeded: str | None
) -> None:
    validate = Validate(1_000_000, max_depth=8, max_keys=100, max_string=50)
    # A message is at least as large as its arguments.
    call = a_call(params={"name": "lab_echo", "arguments": arguments}, route=None, body_bytes=len(repr(arguments)) + 60)
    if exceeded is None:
        await validate(call, end)
        return
    with pytest.raises(Fault) as caught:
        await validate(call, end)
    assert caught.value.kind is Kind.TOO_LARGE
    assert caught.value.details["bound"] == exceeded
