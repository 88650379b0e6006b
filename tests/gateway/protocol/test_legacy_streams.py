"""The handshake era: resumable streams and resource subscriptions."""

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
    """A backend's answer that sends one progress notification for each gate that is opened."""

    def __init__(self, count: int) -> None:
        self.gates = [asyncio.Event() for _ in range(count)]

    async def __call__(self, call: Call) -> Json:
        for number, gate in enumerate(self.gates):
            await gate.wait()
            await call.wire.notify("notifications/progress", {"progressToken": 1, "progress": number})
        return await echo(call)


@pytest.mark.parametrize("received", [0, 1, 2])
async def test_resumed_stream_replays_exactly_the_missed_events(received: int) -> None:
    steps = Steps(3)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo", "_meta": {"progressToken": 1}})
        steps.gates[0].set()
        steps.gates[1].set()
        await until(lambda: len(response.events) == 2)
        primed = response.chunks[0].splitlines()[0].removeprefix(b"id: ").decode()
        last = [primed, *(each.id for each in response.events)][received]
        response.disconnect()
        resumed, watching = rig.begin_get(session, last)
        steps.gates[2].set()
        await asyncio.gather(task, watching)
    progress = [each["params"]["progress"] for each in resumed.messages[:-1]]
    assert progress == [0, 1, 2][received:]
    assert resumed.messages[-1]["id"] == 1
    assert resumed.closed


async def test_call_cancelled_by_the_gateway_leaves_no_stream() -> None:
    """The gateway cancels a call when, for example, its API key is revoked."""
    steps = Steps(2)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo", "_meta": {"progressToken": 1}})
        steps.gates[0].set()
        await until(lambda: response.events)
        assert len(rig.streams) == 1
        response.disconnect()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(rig.streams) == 0
        resumed, watching = rig.begin_get(session, response.events[0].id)
        await asyncio.wait_for(watching, 5)
        assert resumed.status == 404


async def test_ended_stream_can_be_resumed_to_its_end() -> None:
    steps = Steps(1)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        steps.gates[0].set()
        await task
        resumed, watching = rig.begin_get(session, response.events[0].id)
        await asyncio.wait_for(watching, 5)
    assert [each.get("id") for each in resumed.messages] == [1]
    assert resumed.closed


async def test_the_stream_of_another_session_is_not_found() -> None:
    steps = Steps(1)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session, other = await rig.session(), await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        steps.gates[0].set()
        await task
        last = response.events[0].id
        for owner, event in (
            (other, last),
            (session, "w1.0000.1"),
            (session, last.rpartition(".")[0] + ".x"),
            (session, ""),
        ):
            refused, watching = rig.begin_get(owner, event)
            await watching
            assert (refused.status, refused.json["error"]["code"]) == (404, -32001)


async def test_client_can_resume_after_a_backend_ends_the_response() -> None:
    go_on = asyncio.Event()

    async def answer(call: Call) -> Json:
        await call.wire.end_response()
        await go_on.wait()
        return await echo(call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session()
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        await until(lambda: response.closed)
        primed = response.chunks[0].splitlines()[0].removeprefix(b"id: ").decode()
        resumed, watching = rig.begin_get(session, primed)
        await until(lambda: resumed.opened)
        go_on.set()
        await asyncio.gather(task, watching)
    assert resumed.messages[-1]["result"]["content"]


async def send_logs(call: Call) -> Json:
    for level in ("debug", "notice", "error"):
        await call.wire.notify("notifications/message", {"level": level, "data": level})
    return await echo(call)


async def test_session_of_an_older_revision_gets_no_priming_event() -> None:
    async with Rig(FakeBackend(answer=send_logs)) as rig:
        response = await rig.legacy(await rig.session("2025-06-18"), "tools/call", {"name": "lab_echo"})
    assert b"data: \n" not in b"".join(response.chunks)
    assert len(response.events) == 4


# ---- subscriptions ----------------------------------------------------------------------------------------------


def backend_with_resources(**more: Any) -> FakeBackend:
    return FakeBackend(resources=({"uri": "x:a", "name": "a"}, {"uri": "x:b", "name": "b"}), **more)


async def test_update_of_a_subscribed_resource_is_sent_on_the_get_stream() -> None:
    backend = backend_with_resources()
    async with Rig(backend) as rig:
        session = await rig.session()
        uri = (await rig.legacy(session, "resources/list")).json["result"]["resources"][0]["uri"]
        stream, task = rig.begin_get(session)
        await until(lambda: stream.opened)
        assert (await rig.legacy(session, "resources/subscribe", {"uri": uri})).json["result"] == {}
        assert backend.subscriptions[-1] == {"x:a"}
        backend.emit_change(ListChange("resource", "x:b"))
        backend.emit_change(ListChange("resource", "x:a"))
        (notification,) = await until(lambda: stream.sent("notifications/resources/updated"))
        assert notification["params"] == {"uri": uri}
        await rig.legacy(session, "resources/unsubscribe", {"uri": uri})
        assert backend.subscriptions[-1] == frozenset()
        stream.disconnect()
        await task


async def test_subscribing_to_a_resource_outside_the_view_is_rejected() -> None:
    async with Rig(backend_with_resources()) as rig:
        response = await rig.legacy(await rig.session(), "resources/subscribe", {"uri": "gatehouse://no/x"})
    assert (response.json["error"]["code"], response.json["error"]["data"]["uri"]) == (-32002, "gatehouse://no/x")


async def test_ending_a_session_drops_its_upstream_subscriptions() -> None:
    backend = backend_with_resources()
    async with Rig(backend) as rig:
        session = await rig.session()
        uri = (await rig.legacy(session, "resources/list")).json["result"]["resources"][0]["uri"]
        await rig.legacy(session, "resources/subscribe", {"uri": uri})
        await rig.request(verb="DELETE", headers={"mcp-session-id": session})
        assert backend.subscriptions[-1] == frozenset()
        assert rig.subscriptions._interests == {}


class RefusingBackend(FakeBackend):
    """Refuses subscriptions to some URIs, as a server may."""

    refused_uris = frozenset({"lab:bad"})

    async def set_subscriptions(self, interests: Sequence[ResourceInterest]) -> None:
        await super().set_subscriptions(interests)
        if any(each.uris & self.refused_uris for each in interests):
            raise ForeignError(-32002, "There is no such resource.")


async def test_subscription_refused_by_the_backend_is_removed() -> None:
    backend = RefusingBackend(manifest=Manifest(uri_prefixes=("lab:",)))
    async with Rig(backend) as rig:
        session, others = await rig.session(), await rig.session()
        await rig.legacy(session, "resources/subscribe", {"uri": "lab:good"})
        refused = await rig.legacy(session, "resources/subscribe", {"uri": "lab:bad"})
        assert refused.json["error"]["code"] == -32002
        assert list(rig.session_store.uris.values()) == [{"lab:good"}]
        assert "result" in (await rig.legacy(others, "resources/subscribe", {"uri": "lab:fine"})).json
        await until(lambda: backend.subscriptions[-1] == {"lab:good", "lab:fine"})
        stream, _ = rig.begin_get(session)
        await until(lambda: stream.opened)


async def test_get_stream_opens_even_if_a_backend_now_refuses_a_subscription() -> None:
    backend = RefusingBackend(manifest=Manifest(uri_prefixes=("lab:",)))
    async with Rig(backend) as rig:
        session = await rig.session()
        for uri in ("lab:1", "lab:2", "lab:3"):
            await rig.legacy(session, "resources/subscribe", {"uri": uri})
        rig.subscriptions.drop_interest(("session", next(iter(rig.session_store.uris))))
        await until(lambda: backend.subscriptions[-1] == frozenset())
        backend.refused_uris = frozenset({"lab:2"})
        stream, _ = rig.begin_get(session)
        await until(lambda: stream.opened)
        await until(lambda: backend.subscriptions[-1] == {"lab:1", "lab:3"})
        rig.subscriptions.publish("lab", ListChange("resource", "lab:3"))
        await until(lambda: stream.sent("notifications/resources/updated"))
