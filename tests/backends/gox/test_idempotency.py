"""Threat 32, idempotency key replay: a key is scoped to one principal, one tool and one set of arguments."""

import asyncio
from typing import Any

import pytest

from tests.backends.gox import sandbox

KEY = {"idempotencyKey": "k-1"}


def _envelope(answer: dict[str, Any]) -> dict[str, Any]:
    assert "result" in answer, answer
    return answer["result"]["structuredContent"]


async def test_threat_32_repeated_key_returns_the_first_answer_without_a_second_write(gateway: Any) -> None:
    first = _envelope(await gateway.call("sandbox_write", {"value": 1}, KEY))
    again = _envelope(await gateway.call("sandbox_write", {"value": 1}, KEY))
    assert again == first
    assert len(sandbox.written) == 1


async def test_threat_32_twenty_concurrent_calls_reach_the_backend_once(gateway: Any) -> None:
    calls = [asyncio.create_task(gateway.call("sandbox_write", {"gate": "g"}, KEY)) for _ in range(20)]
    await sandbox.gate("g:begun").wait()
    sandbox.gate("g").set()
    envelopes = [_envelope(answer) for answer in await asyncio.gather(*calls)]
    assert len(sandbox.written) == 1
    assert all(envelope == envelopes[0] for envelope in envelopes)


async def test_threat_32_first_caller_can_disconnect_while_another_waits(gateway: Any) -> None:
    first = asyncio.create_task(gateway.call("sandbox_write", {"gate": "g"}, KEY))
    await sandbox.gate("g:begun").wait()
    second = asyncio.create_task(gateway.call("sandbox_write", {"gate": "g"}, KEY))
    first.cancel()
    sandbox.gate("g").set()
    assert _envelope(await second)["output"]["count"] == 1


async def test_threat_32_different_arguments_under_the_same_key_are_rejected(gateway: Any) -> None:
    await gateway.call("sandbox_write", {"value": 1}, KEY)
    for arguments, meta in (({"value": 2}, KEY), ({"value": 1}, {**KEY, "dryRun": True})):
        error = (await gateway.call("sandbox_write", arguments, meta))["error"]
        assert (error["code"], error["data"]["code"]) == (-32602, "VALIDATION_ERROR")
        assert error["data"]["validation_path"] == "_meta.idempotencyKey"
    assert len(sandbox.written) == 1


async def test_threat_32_another_user_or_tenant_does_not_get_the_stored_answer(gateway: Any) -> None:
    await gateway.call("sandbox_write", {"value": 1}, KEY)
    for tenant in ("default", "other"):
        mallory = gateway.as_(await gateway.new_key(tenant, "mallory"))
        await mallory.call("sandbox_write", {"value": 1}, KEY)
    assert len(sandbox.written) == 3
    assert len({request.idempotency_key for request in sandbox.written}) == 3


async def test_threat_32_call_interrupted_by_a_crash_runs_again_under_the_same_key(serving: Any) -> None:
    async with serving() as gateway:
        await gateway.call("sandbox_write", {"value": 1}, KEY)
        key = gateway.key
        store = gateway.app.stores.store("default", "gox", None)
        async with store.transaction() as connection:  # the state after a crash before the answer was stored
            await connection.exec_driver_sql("UPDATE idempotency SET answer = NULL")
    async with serving() as gateway:
        _envelope(await gateway.as_(key).call("sandbox_write", {"value": 1}, KEY))
        _envelope(await gateway.as_(key).call("sandbox_write", {"value": 1}, KEY))
    first, second = sandbox.written
    assert first.idempotency_key == second.idempotency_key is not None


async def test_failure_is_not_stored_so_the_same_key_can_be_retried(gateway: Any) -> None:
    answer = await gateway.call("sandbox_write", {"fails": 1}, KEY)
    assert answer["error"]["data"]["code"] == "INTERNAL_ERROR"
    assert _envelope(await gateway.call("sandbox_write", {"fails": 1}, KEY))["output"]["count"] == 2


async def test_key_expires_after_a_day(gateway: Any) -> None:
    await gateway.call("sandbox_write", {"value": 1}, KEY)
    store = gateway.app.stores.store("default", "gox", None)
    async with store.transaction() as connection:
        await connection.exec_driver_sql("UPDATE idempotency SET made_at = made_at - 86401")
    await gateway.call("sandbox_write", {"value": 2}, KEY)
    assert len(sandbox.written) == 2


@pytest.mark.parametrize("key", ["", "x" * 256, 5, ["k"]])
async def test_invalid_key_is_rejected(gateway: Any, key: Any) -> None:
    error = (await gateway.call("sandbox_write", {}, {"idempotencyKey": key}))["error"]
    assert error["data"]["code"] == "VALIDATION_ERROR"
    assert sandbox.written == []


async def test_read_actions_ignore_the_key(gateway: Any) -> None:
    runs = {_envelope(await gateway.call("core_ping", {}, KEY))["runId"] for _ in range(2)}
    assert len(runs) == 2
