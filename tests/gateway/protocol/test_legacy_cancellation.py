"""The handshake era: cancellation of requests."""

import asyncio
from typing import Any

import pytest

from gateway.contract import Call, Json
from tests.gateway.fakes import FakeBackend, Rig, echo


class Gate:
    """A backend's answer that waits until it is opened, and records whether it was cancelled."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = False

    async def __call__(self, call: Call) -> Json:
        self.running.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return await echo(call)


async def test_a_cancelled_request_is_stopped_and_answered() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id="q")
        await gate.running.wait()
        acknowledged = await rig.legacy(session, "notifications/cancelled", {"requestId": "q"}, id=None)
        await asyncio.wait_for(task, 5)
        assert (acknowledged.status, acknowledged.body) == (202, b"")
        assert gate.cancelled
        assert (response.status, response.json["id"], response.json["error"]["code"]) == (200, "q", -32800)
        assert [row[11] for row in rig.audit_log.rows if row[5] == "tools/call"] == ["cancelled"]


async def test_cancelled_request_gets_the_standard_error_object() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id="q")
        await gate.running.wait()
        await rig.legacy(session, "notifications/cancelled", {"requestId": "q"}, id=None)
        await asyncio.wait_for(task, 5)
    data = response.json["error"].get("data") or {}
    assert (data.get("kind"), data.get("correlation_id")) == ("cancelled", response.headers["x-correlation-id"])


@pytest.mark.parametrize("id", ["1", 2, None, [1], {"a": 1}, 1.0])
async def test_cancelling_an_unknown_request_has_no_effect(id: Any) -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        assert (await rig.legacy(session, "notifications/cancelled", {"requestId": id}, id=None)).status == 202
        gate.open.set()
        await task
    assert "result" in response.json


async def test_one_session_cannot_cancel_anothers_request() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session, other = await rig.session(), await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        await rig.legacy(other, "notifications/cancelled", {"requestId": 1}, id=None)
        gate.open.set()
        await task
    assert "result" in response.json


async def test_finished_requests_leave_no_state() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        _, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        await rig.legacy(session, "notifications/cancelled", {"requestId": 1}, id=None)
        await task
        legacy = rig.router._legacy
        assert (legacy._running, legacy._cancelled, rig.keep_alive._streams) == ({}, set(), set())


async def test_disconnect_does_not_cancel_a_handshake_era_call() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        await gate.running.wait()
        response.disconnect()
        gate.open.set()
        await task
    assert not gate.cancelled


async def test_caller_with_an_exhausted_limit_can_still_cancel() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate), rate="2/hour") as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=7)
        await gate.running.wait()
        assert (await rig.legacy(session, "notifications/cancelled", {"requestId": 8}, id=None)).status == 429
        assert (await rig.legacy(session, "notifications/cancelled", {"requestId": 7}, id=None)).status == 202
        await asyncio.wait_for(task, 5)
        assert gate.cancelled
        assert response.final_message["error"]["code"] == -32800


async def test_cancelled_request_is_answered_even_if_another_with_the_same_id_ends_meanwhile() -> None:
    gates = {"first": Gate(), "second": Gate()}

    async def answer(call: Call) -> Json:
        return await gates[call.arguments["text"]](call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session()
        responses: list[Any] = []
        for name, gate in gates.items():
            responses.append(rig.begin_legacy(session, "tools/call", {"name": "lab_echo", "arguments": {"text": name}}))
            await gate.running.wait()
        (digest, _) = next(iter(rig.legacy_era._running))
        gates["first"].open.set()  # It resumes before the other one.
        assert rig.legacy_era._cancel(digest, 1)
        for _, task in responses:
            await asyncio.wait_for(task, 5)
        assert "result" in responses[0][0].json
        assert responses[1][0].json["error"]["code"] == -32800
