"""The handshake era: streams that can be resumed, and what they tell of."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.contract import Call, Json, ListChange, Manifest, ResourceInterest
from gateway.errors import ForeignError
from tests.gateway.fakes import FakeBackend, Rig, echo, until

FORM: Json = {"method": "elicitation/create", "params": {"message": "Who?", "mode": "form"}}


# ---- resumption -------------------------------------------------------------------------------------------------


class Steps:
    """An answer that says one step each time it is let go on."""

    def __init__(self, count: int) -> None:
        self.gates = [asyncio.Event() for _ in range(count)]

    async def __call__(self, call: Call) -> Json:
        for number, gate in enumerate(self.gates):
            await gate.wait()
            await call.wire.notify("notifications/progress", {"progressToken": 1, "progress": number})
        return await echo(call)


@pytest.mark.parametrize("seen", [0, 1, 2])
async def test_a_resumed_stream_brings_exactly_what_was_missed(seen: int) -> None:
    steps = Steps(3)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo", "_meta": {"progressToken": 1}})
        steps.gates[0].set()
        steps.gates[1].set()
        await until(lambda: len(paper.events) == 2)
        primed = paper.chunks[0].splitlines()[0].removeprefix(b"id: ").decode()
        last = [primed, *(each.id for each in paper.events)][seen]
        paper.leave()
        resumed, watching = rig.begin_get(session, last)
        steps.gates[2].set()
        await asyncio.gather(task, watching)
    progress = [each["params"]["progress"] for each in resumed.messages[:-1]]
    assert progress == [0, 1, 2][seen:]
    assert resumed.messages[-1]["id"] == 1
    assert resumed.closed


async def test_nothing_stays_of_a_call_that_is_ended_from_outside() -> None:
    """As it is when the key is revoked that made it."""
    steps = Steps(2)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo", "_meta": {"progressToken": 1}})
        steps.gates[0].set()
        await until(lambda: paper.events)
        assert len(rig.streams) == 1
        paper.leave()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(rig.streams) == 0
        resumed, watching = rig.begin_get(session, paper.events[0].id)
        await asyncio.wait_for(watching, 5)
        assert resumed.status == 404


async def test_a_stream_that_is_over_can_still_be_read_to_its_end() -> None:
    steps = Steps(1)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        steps.gates[0].set()
        await task
        resumed, watching = rig.begin_get(session, paper.events[0].id)
        await asyncio.wait_for(watching, 5)
    assert [each.get("id") for each in resumed.messages] == [1]
    assert resumed.closed


async def test_the_stream_of_another_session_is_not_found() -> None:
    steps = Steps(1)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session, other = await rig.session(), await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        steps.gates[0].set()
        await task
        last = paper.events[0].id
        for who, event in (
            (other, last),
            (session, "w1.0000.1"),
            (session, last.rpartition(".")[0] + ".x"),
            (session, ""),
        ):
            refused, watching = rig.begin_get(who, event)
            await watching
            assert (refused.status, refused.json["error"]["code"]) == (404, -32001)


async def test_a_backend_may_hang_up_and_the_client_comes_back_for_the_rest() -> None:
    go_on = asyncio.Event()

    async def answer(call: Call) -> Json:
        await call.wire.hang_up()
        await go_on.wait()
        return await echo(call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        await until(lambda: paper.closed)
        primed = paper.chunks[0].splitlines()[0].removeprefix(b"id: ").decode()
        resumed, watching = rig.begin_get(session, primed)
        await until(lambda: resumed.opened)
        go_on.set()
        await asyncio.gather(task, watching)
    assert resumed.messages[-1]["result"]["content"]


async def noisy(call: Call) -> Json:
    for level in ("debug", "notice", "error"):
        await call.wire.notify("notifications/message", {"level": level, "data": level})
    return await echo(call)


async def test_a_session_older_than_priming_gets_no_event_without_data() -> None:
    async with Rig(FakeBackend(answer=noisy)) as rig:
        paper = await rig.legacy(await rig.session("2025-06-18"), "tools/call", {"name": "lab_echo"})
    assert b"data: \n" not in b"".join(paper.chunks)
    assert len(paper.events) == 4


# ---- subscriptions ----------------------------------------------------------------------------------------------


def watched(**more: Any) -> FakeBackend:
    return FakeBackend(resources=({"uri": "x:a", "name": "a"}, {"uri": "x:b", "name": "b"}), **more)


async def test_a_subscribed_resource_is_told_of_on_the_standing_stream() -> None:
    backend = watched()
    async with Rig(backend) as rig:
        session = await rig.session()
        uri = (await rig.legacy(session, "resources/list")).json["result"]["resources"][0]["uri"]
        stream, task = rig.begin_get(session)
        await until(lambda: stream.opened)
        assert (await rig.legacy(session, "resources/subscribe", {"uri": uri})).json["result"] == {}
        assert backend.watches[-1] == {"x:a"}
        backend.say(ListChange("resource", "x:b"))
        backend.say(ListChange("resource", "x:a"))
        (told,) = await until(lambda: stream.sent("notifications/resources/updated"))
        assert told["params"] == {"uri": uri}
        await rig.legacy(session, "resources/unsubscribe", {"uri": uri})
        assert backend.watches[-1] == frozenset()
        stream.leave()
        await task


async def test_a_resource_that_is_not_in_view_cannot_be_subscribed_to() -> None:
    async with Rig(watched()) as rig:
        paper = await rig.legacy(await rig.session(), "resources/subscribe", {"uri": "gatehouse://no/x"})
    assert (paper.json["error"]["code"], paper.json["error"]["data"]["uri"]) == (-32002, "gatehouse://no/x")


async def test_the_end_of_a_session_ends_what_was_watched_for_it() -> None:
    backend = watched()
    async with Rig(backend) as rig:
        session = await rig.session()
        uri = (await rig.legacy(session, "resources/list")).json["result"]["resources"][0]["uri"]
        await rig.legacy(session, "resources/subscribe", {"uri": uri})
        await rig.request(verb="DELETE", headers={"mcp-session-id": session})
        assert backend.watches[-1] == frozenset()
        assert rig.hub._wants == {}


class Picky(FakeBackend):
    """Refuses whoever wants what it does not like, as a server may."""

    disliked = frozenset({"lab:bad"})

    async def set_subscriptions(self, wants: Sequence[ResourceInterest]) -> None:
        await super().set_subscriptions(wants)
        if any(each.uris & self.disliked for each in wants):
            raise ForeignError(-32002, "There is no such resource.")


async def test_a_subscription_that_its_backend_refuses_leaves_nothing_behind() -> None:
    backend = Picky(manifest=Manifest(uri_prefixes=("lab:",)))
    async with Rig(backend) as rig:
        session, others = await rig.session(), await rig.session()
        await rig.legacy(session, "resources/subscribe", {"uri": "lab:good"})
        refused = await rig.legacy(session, "resources/subscribe", {"uri": "lab:bad"})
        assert refused.json["error"]["code"] == -32002
        assert list(rig.rows.uris.values()) == [{"lab:good"}]
        assert "result" in (await rig.legacy(others, "resources/subscribe", {"uri": "lab:fine"})).json
        await until(lambda: backend.watches[-1] == {"lab:good", "lab:fine"})
        stream, _ = rig.begin_get(session)
        await until(lambda: stream.opened)


async def test_a_stream_opens_though_a_backend_refuses_now_what_it_agreed_to_once() -> None:
    backend = Picky(manifest=Manifest(uri_prefixes=("lab:",)))
    async with Rig(backend) as rig:
        session = await rig.session()
        for uri in ("lab:1", "lab:2", "lab:3"):
            await rig.legacy(session, "resources/subscribe", {"uri": uri})
        rig.hub.drop(("session", next(iter(rig.rows.uris))))
        await until(lambda: backend.watches[-1] == frozenset())
        backend.disliked = frozenset({"lab:2"})
        stream, _ = rig.begin_get(session)
        await until(lambda: stream.opened)
        await until(lambda: backend.watches[-1] == {"lab:1", "lab:3"})
        rig.hub.changed("lab", ListChange("resource", "lab:3"))
        await until(lambda: stream.sent("notifications/resources/updated"))
