"""Results are bounded by tool, kept to the kinds allowed, and cleaned as their backend's entry says."""

from typing import Any

import pytest

from gateway.contract import Call, Json, Manifest
from gateway.errors import Fault, Kind
from gateway.stages.guard import Guard
from tests.gateway.fakes import FakeBackend, a_call, a_route

DIRTY = "\x1b[31mred\u200b"
SECRET = "AKIA" + "A1B2C3D4E5F6G7H8"


async def guarded(result: Json, *, trusted: bool = True, **manifest: Any) -> Any:
    backend = FakeBackend(manifest=Manifest(**manifest))
    backend.trusted = trusted

    async def end(call: Call) -> Json:
        return result

    return await Guard(1000)(a_call(route=a_route(backend)), end)


def text(given: str) -> Json:
    return {"content": [{"type": "text", "text": given}]}


@pytest.mark.parametrize(
    ("trusted", "clean", "expected"),
    [
        (True, None, f"red {SECRET}"),
        (False, None, f"{DIRTY} {SECRET}"),
        (False, frozenset({"text"}), f"red {SECRET}"),
        (False, frozenset({"secrets"}), f"{DIRTY} [redacted]"),
        (True, frozenset(), f"{DIRTY} {SECRET}"),
        (True, frozenset({"text", "secrets"}), "red [redacted]"),
    ],
)
async def test_modules_are_cleaned_and_remote_servers_as_their_entry_says(
    trusted: bool, clean: frozenset[str] | None, expected: str
) -> None:
    assert await guarded(text(f"{DIRTY} {SECRET}"), trusted=trusted, clean=clean) == text(expected)


async def test_a_tool_may_have_a_bound_of_its_own_below_the_gateways() -> None:
    with pytest.raises(Fault) as refused:
        await guarded(text("x" * 200), result_bytes={"echo": 100})
    assert refused.value.kind is Kind.TOO_LARGE
    assert refused.value.details["max_bytes"] == 100
    await guarded(text("x" * 200), result_bytes={"other": 100})
    with pytest.raises(Fault):
        await guarded(text("x" * 2000), result_bytes={"*": 100_000})


@pytest.mark.parametrize(
    ("item", "passes"),
    [
        ({"type": "image", "data": "AA==", "mimeType": "image/png"}, True),
        ({"type": "image", "data": "AA==", "mimeType": "IMAGE/PNG; q=1"}, True),
        ({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}, False),
        ({"type": "resource", "resource": {"uri": "a://b", "blob": "AA=="}}, False),
        ({"type": "resource", "resource": {"uri": "a://b", "text": "hello"}}, True),
        ({"type": "text", "text": "hello"}, True),
    ],
)
async def test_only_kinds_of_content_that_are_allowed_pass(item: Json, passes: bool) -> None:
    result = {"content": [item]}
    if passes:
        assert await guarded(result, media_types=("image/*",)) == result
    else:
        with pytest.raises(Fault) as refused:
            await guarded(result, media_types=("image/*",))
        assert refused.value.kind is Kind.DENIED
