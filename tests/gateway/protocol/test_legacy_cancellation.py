"""The handshake era: what is cancelled, and what is not."""

import asyncio
from typing import Any

import pytest

from gateway.contract import Call, Json
from tests.gateway.fakes import FakeBackend, Rig, echo


class Gate:
    """A backend's answer that waits until it is opened, and notes how it ended."""

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
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id="q")
        await gate.running.wait()
        told = await rig.legacy(session, "notifications/cancelled", {"requestId": "q"}, id=None)
        await asyncio.wait_for(task, 5)
        assert (told.status, told.body) == (202, b"")
        assert gate.cancelled
        assert (paper.status, paper.json["id"], paper.json["error"]["code"]) == (200, "q", -32800)
        assert [row[11] for row in rig.log.rows if row[5] == "tools/call"] == ["cancelled"]


async def test_a_cancelled_request_gets_the_error_object_of_every_other_failure() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id="q")
        await gate.running.wait()
        await rig.legacy(session, "notifications/cancelled", {"requestId": "q"}, id=None)
        await asyncio.wait_for(task, 5)
    data = paper.json["error"].get("data") or {}
    assert (data.get("kind"), data.get("correlation_id")) == ("cancelled", paper.headers["x-correlation-id"])


@pytest.mark.parametrize("id", ["1", 2, None, [1], {"a": 1}, 1.0])
async def test_cancelling_what_does_not_run_does_nothing(id: Any) -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        assert (await rig.legacy(session, "notifications/cancelled", {"requestId": id}, id=None)).status == 202
        gate.open.set()
        await task
    assert "result" in paper.json


async def test_one_session_cannot_cancel_anothers_request() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session, other = await rig.session(), await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        await rig.legacy(other, "notifications/cancelled", {"requestId": 1}, id=None)
        gate.open.set()
        await task
    assert "result" in paper.json


async def test_nothing_is_kept_of_requests_that_ended() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        _, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        await rig.legacy(session, "notifications/cancelled", {"requestId": 1}, id=None)
        await task
        legacy = rig.entry._legacy
        assert (legacy._running, legacy._cancelled, rig.pulse._living) == ({}, set(), set())


async def test_a_client_that_leaves_does_not_cancel_in_this_era() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        await gate.running.wait()
        paper.leave()
        gate.open.set()
        await task
    assert not gate.cancelled


async def test_whoever_has_spent_its_limit_may_still_cancel() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate), calls="2/hour") as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=7)
        await gate.running.wait()
        assert (await rig.legacy(session, "notifications/cancelled", {"requestId": 8}, id=None)).status == 429
        assert (await rig.legacy(session, "notifications/cancelled", {"requestId": 7}, id=None)).status == 202
        await asyncio.wait_for(task, 5)
        assert gate.cancelled
        assert paper.last["error"]["code"] == -32800


async def test_of_two_requests_with_one_id_the_cancelled_one_is_answered_though_the_other_ends_meanwhile() -> None:
    gates = {"first": Gate(), "second": Gate()}

    async def answer(call: Call) -> Json:
        return await gates[call.arguments["text"]](call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session()
        papers: list[Any] = []
        for name, gate in gates.items():
            papers.append(rig.begin_legacy(session, "tools/call", {"name": "lab_echo", "arguments": {"text": name}}))
            await gate.running.wait()
        (digest, _) = next(iter(rig.legacy_door._running))
        gates["first"].open.set()  # it is woken before the other is
        assert rig.legacy_door._cancel(digest, 1)
        for _, task in papers:
            await asyncio.wait_for(task, 5)
        assert "result" in papers[0][0].json
        assert papers[1][0].json["error"]["code"] == -32800
