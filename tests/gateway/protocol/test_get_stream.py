"""The GET stream of a handshake-era session."""

import asyncio

from gateway.contract import ListChange
from gateway.protocol.event_streams import RETENTION_SECONDS
from gateway.protocol.subscriptions import BACKLOG
from tests.gateway.fakes import Clock, FakeBackend, Rig, until

CHANGED = "notifications/tools/list_changed"


def changed(rig: Rig) -> None:
    rig.subscriptions.publish("lab", ListChange("tools"))


async def test_list_changes_are_sent_as_notifications() -> None:
    async with Rig(FakeBackend()) as rig:
        stream, _ = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        for kind in ("tools", "prompts", "resources"):
            rig.subscriptions.publish("lab", ListChange(kind))
            await until(lambda kind=kind: stream.sent(f"notifications/{kind}/list_changed"))
        assert all("params" not in each or "_meta" not in each["params"] for each in stream.messages)


async def test_change_of_a_hidden_backend_is_not_sent() -> None:
    async with Rig(FakeBackend()) as rig:
        stream, _ = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        rig.subscriptions.publish("secret", ListChange("tools"))
        changed(rig)
        await until(lambda: stream.sent(CHANGED))
        assert len(stream.messages) == 1


async def test_second_get_stream_replaces_the_first() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        first, waiting = rig.begin_get(session)
        await until(lambda: first.opened)
        second, _ = rig.begin_get(session)
        await asyncio.wait_for(waiting, 5)
        assert first.closed
        changed(rig)
        await until(lambda: second.sent(CHANGED))
        assert not first.messages


async def test_changes_while_disconnected_are_replayed_on_resume() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        first, waiting = rig.begin_get(session)
        await until(lambda: first.opened)
        changed(rig)
        await until(lambda: first.events)
        first.disconnect()
        await asyncio.wait_for(waiting, 5)
        changed(rig)
        rig.subscriptions.publish("lab", ListChange("prompts"))
        await asyncio.sleep(0)
        second, _ = rig.begin_get(session, first.events[0].id)
        await until(lambda: len(second.events) == 2)
        assert [each["method"].split("/")[1] for each in second.messages] == ["tools", "prompts"]


async def test_ending_the_session_ends_its_get_stream() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        stream, waiting = rig.begin_get(session)
        await until(lambda: stream.opened)
        await rig.request(verb="DELETE", headers={"mcp-session-id": session})
        await asyncio.wait_for(waiting, 5)
        assert stream.closed
        assert rig.subscriptions._listeners == set()
        # It cannot be resumed, so nothing of it is kept.
        await until(lambda: not rig.get_streams._streams._streams)


async def test_a_stopping_server_ends_every_stream() -> None:
    async with Rig(FakeBackend()) as rig:
        stream, waiting = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        rig.subscriptions.close()
        await asyncio.wait_for(waiting, 5)
        assert stream.closed


async def test_detached_get_stream_ends_after_one_minute() -> None:
    clock = Clock()
    async with Rig(FakeBackend()) as rig:
        stream, waiting = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        stream.disconnect()
        await asyncio.wait_for(waiting, 5)
        await clock.forward(RETENTION_SECONDS - 1)
        assert len(rig.subscriptions._listeners) == 1
        await clock.forward(2)
        await until(lambda: not rig.subscriptions._listeners)
        assert rig.get_streams._pumps == {}


async def test_expiry_of_a_replaced_stream_does_not_end_its_replacement() -> None:
    clock = Clock()
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        first, waiting = rig.begin_get(session)
        await until(lambda: first.opened)
        second, _ = rig.begin_get(session)
        await asyncio.wait_for(waiting, 5)
        await until(lambda: second.opened)
        await clock.forward(RETENTION_SECONDS + 1)
        await asyncio.sleep(0)
        changed(rig)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not second.closed
        await until(lambda: second.sent(CHANGED))


async def test_resumed_call_does_not_end_the_get_stream() -> None:
    clock = Clock()
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        get_stream, _ = rig.begin_get(session)
        await until(lambda: get_stream.opened)
        headers = {"accept": "text/event-stream, application/json"}
        called = await rig.legacy(session, "tools/call", {"name": "lab_echo"}, headers=headers)
        _, waiting = rig.begin_get(session, called.events[0].id)
        await asyncio.wait_for(waiting, 5)
        await clock.forward(RETENTION_SECONDS + 1)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not get_stream.closed


async def test_stream_with_a_full_backlog_is_ended_and_removed() -> None:
    async with Rig(FakeBackend()) as rig:
        stream, waiting = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        for _ in range(BACKLOG + 1):
            changed(rig)
        await asyncio.wait_for(waiting, 5)
        assert rig.get_streams._pumps == {}
