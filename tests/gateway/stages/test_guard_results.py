"""Results: size limits per tool, allowed media types, and cleaning as configured for the backend."""

from typing import Any

import pytest

from gateway.contract import Call, Json, Manifest
from gateway.errors import Fault, Kind
from gateway.stages.guard import Guard
from tests.gateway.fakes import FakeBackend, a_call, a_route

DIRTY = "\x1b[31mred\u200b"
SECRET = "AKIA" + "A1B2C3D4E5F6G7H8"


async def guard_result(result: Json, *, trusted: bool = True, **manifest: Any) -> Any:
    backend = FakeBackend(manifest=Manifest(**manifest))
    backend.trusted = trusted

    async def end(call: Call) -> Json:
        return result

    return await Guard(1000)(a_call(route=a_route(backend)), end)


def text_result(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


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
async def test_results_of_modules_are_cleaned_by_default_and_of_remote_servers_if_configured(
    trusted: bool, clean: frozenset[str] | None, expected: str
) -> None:
    assert await guard_result(text_result(f"{DIRTY} {SECRET}"), trusted=trusted, clean=clean) == text_result(expected)


async def test_tool_may_have_a_lower_result_limit_than_the_gateway() -> None:
    with pytest.raises(Fault) as caught:
        await guard_result(text_result("x" * 200), result_bytes={"echo": 100})
    assert caught.value.kind is Kind.TOO_LARGE
    assert caught.value.details["max_bytes"] == 100
    await guard_result(text_result("x" * 200), result_bytes={"other": 100})
    with pytest.raises(Fault):
        await guard_result(text_result("x" * 2000), result_bytes={"*": 100_000})


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
async def test_only_allowed_media_types_pass(item: Json, passes: bool) -> None:
    result = {"content": [item]}
    if passes:
        assert await guard_result(result, media_types=("image/*",)) == result
    else:
        with pytest.raises(Fault) as caught:
            await guard_result(result, media_types=("image/*",))
        assert caught.value.kind is Kind.DENIED
