"""Arguments are bounded in depth, number and length, whatever their size."""

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
    ("arguments", "bound"),
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
async def test_threat_23_what_is_too_deep_too_many_or_too_long_is_refused(arguments: Json, bound: str | None) -> None:
    validate = Validate(1_000_000, max_depth=8, max_keys=100, max_string=50)
    # As large as it is on the wire at least: a message is never smaller than what it holds.
    call = a_call(params={"name": "lab_echo", "arguments": arguments}, route=None, body_bytes=len(repr(arguments)) + 60)
    if bound is None:
        await validate(call, end)
        return
    with pytest.raises(Fault) as refused:
        await validate(call, end)
    assert refused.value.kind is Kind.TOO_LARGE
    assert refused.value.details["bound"] == bound
