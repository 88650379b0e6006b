"""2026-07-28: the answers, and cancellation by leaving."""

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


# ---- answers ----------------------------------------------------------------------------------------------------


async def test_a_notification_is_acknowledged_and_reaches_nobody() -> None:
    async with Rig(FakeBackend()) as rig:
        sent = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).encode()
        paper = await rig.request(sent, {"mcp-protocol-version": MODERN})
        refused = await rig.request(sent, {"mcp-protocol-version": "2099-01-01"})
    assert (paper.status, paper.body) == (202, b"")
    assert (refused.status, refused.json["error"]["code"]) == (400, -32022)
    assert [(call.method, call.record.outcome) for call in rig.told] == [("_OTHER", "error:-32022")]


async def test_a_result_is_whole_and_stamped() -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.modern(
            "tools/call", {"name": "lab_echo", "arguments": {"a": 1}}, meta={"correlationId": "c-1"}
        )
    result = paper.json["result"]
    assert (paper.status, result["resultType"], result["structuredContent"]) == (200, "complete", {"got": {"a": 1}})
    assert result["_meta"] == {f"{META}serverInfo": {"name": "gatehouse", "version": "0"}, "correlation_id": "c-1"}
    assert paper.headers["x-correlation-id"] == "c-1"


async def test_nothing_that_a_backend_says_is_dropped() -> None:
    said = {"content": [{"type": "hologram", "x": 1}], "custom": {"k": None}, "_meta": {"own": [1]}, "isError": False}

    async def answer(call: Call) -> Json:
        return dict(said)

    async with Rig(FakeBackend(answer=answer)) as rig:
        result = (await rig.modern("tools/call", {"name": "lab_echo"})).json["result"]
    kept = ("content", "custom", "isError")
    assert {key: result[key] for key in kept} == {key: said[key] for key in kept}
    assert result["_meta"]["own"] == [1]


async def test_a_resource_without_cache_hints_gets_the_careful_ones() -> None:
    async def answer(call: Call) -> Json:
        hints = {"ttlMs": 9, "cacheScope": "public"} if call.params["uri"].endswith("b") else {}
        return {"contents": [], **hints}

    backend = FakeBackend(answer=answer, resources=({"uri": "x:a", "name": "a"}, {"uri": "x:b", "name": "b"}))
    async with Rig(backend) as rig:
        shown = [each["uri"] for each in (await rig.modern("resources/list")).json["result"]["resources"]]
        first, second = [(await rig.modern("resources/read", {"uri": uri})).json["result"] for uri in shown]
    assert (first["ttlMs"], first["cacheScope"]) == (0, "private")
    assert (second["ttlMs"], second["cacheScope"]) == (9, "public")


async def test_discovery_says_what_the_callers_backends_offer() -> None:
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
        paper = await rig.modern("tools/call", {"name": "lab_echo"}, meta=meta)
    assert (paper.headers["content-type"], paper.headers["x-accel-buffering"]) == ("text/event-stream", "no")
    progress, message, answered = paper.messages
    assert progress == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "p", "progress": 1},
    }
    assert (message["method"], message["params"]["level"]) == ("notifications/message", "warning")
    assert (answered["id"], answered["result"]["resultType"]) == (1, "complete")
    assert paper.closed
    assert [each.id for each in paper.events] == ["", "", ""]  # nothing to resume in this era


async def test_without_a_log_level_no_log_message_is_sent() -> None:
    async def answer(call: Call) -> Json:
        await call.wire.notify("notifications/message", {"level": "emergency", "data": "x"})
        return await echo(call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        paper = await rig.modern("tools/call", {"name": "lab_echo"})
    assert not paper.opened
    assert paper.json["result"]["resultType"] == "complete"


async def test_a_failure_after_the_first_notification_comes_on_the_stream() -> None:
    async def answer(call: Call) -> Json:
        await call.wire.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        raise ValueError("secret")

    async with Rig(FakeBackend(answer=answer)) as rig:
        paper = await rig.modern("tools/call", {"name": "lab_echo"}, meta={"progressToken": 1})
    assert paper.messages[-1]["result"]["isError"] is True
    assert "secret" not in str(paper.chunks)
    assert paper.closed


# ---- leaving ----------------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_cancels_the_handler() -> None:
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
        paper, task = rig.begin_modern("tools/call", {"name": "lab_echo"})
        await running.wait()
        paper.leave()
        await asyncio.wait_for(task, 5)
        assert cancelled.is_set()
        assert not paper.closed
        assert [row[11] for row in rig.log.rows] == ["cancelled"]
        assert not rig.pulse._living


async def test_a_stopping_server_is_not_taken_for_a_client_that_left() -> None:
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


# ---- a hundred calls at once ------------------------------------------------------------------------------------


async def test_answers_of_calls_that_run_side_by_side_do_not_mix() -> None:
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
    for n, (paper, _) in enumerate(begun):
        assert (paper.json["id"], paper.json["result"]["structuredContent"]) == (n, {"got": {"n": n}})
