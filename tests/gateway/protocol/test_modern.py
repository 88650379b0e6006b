"""The modern era: responses, and cancellation by disconnecting."""

import asyncio
import json
from typing import Any

import pytest

from gateway.contract import MODERN, Call, Json
from tests.gateway.fakes import FakeBackend, Rig, echo, until

META = "io.modelcontextprotocol/"


def body(method: str = "tools/call", *, id: Any = 1, meta: Any = None, **params: Any) -> bytes:
    envelope = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}
    params["_meta"] = envelope if meta is None else meta
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


# ---- responses --------------------------------------------------------------------------------------------------


async def test_notification_is_acknowledged_and_not_forwarded() -> None:
    async with Rig(FakeBackend()) as rig:
        sent = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).encode()
        response = await rig.request(sent, {"mcp-protocol-version": MODERN})
        refused = await rig.request(sent, {"mcp-protocol-version": "2099-01-01"})
    assert (response.status, response.body) == (202, b"")
    assert (refused.status, refused.json["error"]["code"]) == (400, -32022)
    assert [(call.method, call.record.outcome) for call in rig.traced_calls] == [("_OTHER", "error:-32022")]


async def test_result_is_complete_and_has_server_info_and_correlation_id() -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.modern(
            "tools/call", {"name": "lab_echo", "arguments": {"a": 1}}, meta={"correlationId": "c-1"}
        )
    result = response.json["result"]
    assert (response.status, result["resultType"], result["structuredContent"]) == (200, "complete", {"got": {"a": 1}})
    assert result["_meta"] == {f"{META}serverInfo": {"name": "gatehouse", "version": "0"}, "correlation_id": "c-1"}
    assert response.headers["x-correlation-id"] == "c-1"


async def test_members_of_a_backend_result_are_kept() -> None:
    sent_result = {
        "content": [{"type": "hologram", "x": 1}],
        "custom": {"k": None},
        "_meta": {"own": [1]},
        "isError": False,
    }

    async def answer(call: Call) -> Json:
        return dict(sent_result)

    async with Rig(FakeBackend(answer=answer)) as rig:
        result = (await rig.modern("tools/call", {"name": "lab_echo"})).json["result"]
    passed = ("content", "custom", "isError")
    assert {key: result[key] for key in passed} == {key: sent_result[key] for key in passed}
    assert result["_meta"]["own"] == [1]


async def test_resource_without_cache_hints_is_private_and_not_cacheable() -> None:
    async def answer(call: Call) -> Json:
        hints = {"ttlMs": 9, "cacheScope": "public"} if call.params["uri"].endswith("b") else {}
        return {"contents": [], **hints}

    backend = FakeBackend(answer=answer, resources=({"uri": "x:a", "name": "a"}, {"uri": "x:b", "name": "b"}))
    async with Rig(backend) as rig:
        shown = [each["uri"] for each in (await rig.modern("resources/list")).json["result"]["resources"]]
        first, second = [(await rig.modern("resources/read", {"uri": uri})).json["result"] for uri in shown]
    assert (first["ttlMs"], first["cacheScope"]) == (0, "private")
    assert (second["ttlMs"], second["cacheScope"]) == (9, "public")


async def test_discovery_lists_the_capabilities_of_the_callers_backends() -> None:
    backend = FakeBackend(instructions="Be kind.")
    async with Rig(backend, ttl=5.0) as rig:
        result = (await rig.modern("server/discover")).json["result"]
    assert result["supportedVersions"] == [MODERN]
    assert result["capabilities"]["tools"] == {"listChanged": True}
    assert result["instructions"] == "## lab\nBe kind."
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (5000, "private", "complete")
    assert "serverInfo" not in result
    assert result["_meta"][f"{META}serverInfo"]["name"] == "gatehouse"


async def test_the_four_lists_are_cacheable_and_private() -> None:
    async with Rig(FakeBackend()) as rig:
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            result = (await rig.modern(method)).json["result"]
            assert (result["resultType"], result["cacheScope"], result["ttlMs"]) == ("complete", "private", 60000)


async def test_progress_and_logs_turn_the_answer_into_a_stream() -> None:
    async def answer(call: Call) -> Json:
        await call.wire.notify("notifications/progress", {"progressToken": call.meta["progressToken"], "progress": 1})
        for level in ("debug", "warning"):
            await call.wire.notify("notifications/message", {"level": level, "data": level})
        return await echo(call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        meta = {"progressToken": "p", f"{META}logLevel": "info"}
        response = await rig.modern("tools/call", {"name": "lab_echo"}, meta=meta)
    assert (response.headers["content-type"], response.headers["x-accel-buffering"]) == ("text/event-stream", "no")
    progress, message, result = response.messages
    assert progress == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "p", "progress": 1},
    }
    assert (message["method"], message["params"]["level"]) == ("notifications/message", "warning")
    assert (result["id"], result["result"]["resultType"]) == (1, "complete")
    assert response.closed
    assert [each.id for each in response.events] == ["", "", ""]  # Streams of this era cannot be resumed.


async def test_without_a_log_level_no_log_message_is_sent() -> None:
    async def answer(call: Call) -> Json:
        await call.wire.notify("notifications/message", {"level": "emergency", "data": "x"})
        return await echo(call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        response = await rig.modern("tools/call", {"name": "lab_echo"})
    assert not response.opened
    assert response.json["result"]["resultType"] == "complete"


async def test_failure_after_the_first_notification_is_sent_on_the_stream() -> None:
    async def answer(call: Call) -> Json:
        await call.wire.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        raise ValueError("secret")

    async with Rig(FakeBackend(answer=answer)) as rig:
        response = await rig.modern("tools/call", {"name": "lab_echo"}, meta={"progressToken": 1})
    assert response.messages[-1]["result"]["isError"] is True
    assert "secret" not in str(response.chunks)
    assert response.closed


# ---- disconnect -------------------------------------------------------------------------------------------------


async def test_disconnect_cancels_the_handler() -> None:
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def answer(call: Call) -> Json:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {}

    async with Rig(FakeBackend(answer=answer)) as rig:
        response, task = rig.begin_modern("tools/call", {"name": "lab_echo"})
        await running.wait()
        response.disconnect()
        await asyncio.wait_for(task, 5)
        assert cancelled.is_set()
        assert not response.closed
        assert [row[11] for row in rig.audit_log.rows] == ["cancelled"]
        assert not rig.keep_alive._streams


async def test_server_stop_is_not_treated_as_a_disconnect() -> None:
    running = asyncio.Event()

    async def answer(call: Call) -> Json:
        running.set()
        await asyncio.Event().wait()
        return {}

    async with Rig(FakeBackend(answer=answer)) as rig:
        _, task = rig.begin_modern("tools/call", {"name": "lab_echo"})
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# ---- concurrent calls -------------------------------------------------------------------------------------------


async def test_responses_of_concurrent_calls_are_not_mixed_up() -> None:
    gates = [asyncio.Event() for _ in range(20)]

    async def answer(call: Call) -> Json:
        await gates[call.arguments["n"]].wait()
        return await echo(call)

    backend = FakeBackend(answer=answer)
    async with Rig(backend) as rig:
        begun = [rig.begin_modern("tools/call", {"name": "lab_echo", "arguments": {"n": n}}, id=n) for n in range(20)]
        await until(lambda: len(backend.calls) == 20)
        for gate in reversed(gates):
            gate.set()
        await asyncio.gather(*(task for _, task in begun))
    for n, (response, _) in enumerate(begun):
        assert (response.json["id"], response.json["result"]["structuredContent"]) == (n, {"got": {"n": n}})
