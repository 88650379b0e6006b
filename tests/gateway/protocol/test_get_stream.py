"""The standing GET stream of a session."""

import asyncio

from gateway.contract import ListChange
from gateway.protocol.event_streams import KEPT_SECONDS
from gateway.protocol.subscriptions import BACKLOG
from tests.gateway.fakes import Clock, FakeBackend, Rig, until

CHANGED = "notifications/tools/list_changed"


def changed(rig: Rig) -> None:
    rig.hub.changed("lab", ListChange("tools"))


async def test_changes_of_the_lists_are_told_as_they_happen() -> None:
    async with Rig(FakeBackend()) as rig:
        stream, _ = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        for kind in ("tools", "prompts", "resources"):
            rig.hub.changed("lab", ListChange(kind))
            await until(lambda kind=kind: stream.sent(f"notifications/{kind}/list_changed"))
        assert all("params" not in each or "_meta" not in each["params"] for each in stream.messages)


async def test_a_change_of_a_backend_that_the_caller_cannot_see_is_not_told() -> None:
    async with Rig(FakeBackend()) as rig:
        stream, _ = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        rig.hub.changed("secret", ListChange("tools"))
        changed(rig)
        await until(lambda: stream.sent(CHANGED))
        assert len(stream.messages) == 1


async def test_a_second_standing_stream_replaces_the_first() -> None:
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


async def test_what_changes_while_the_client_is_away_waits_for_it() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        first, waiting = rig.begin_get(session)
        await until(lambda: first.opened)
        changed(rig)
        await until(lambda: first.events)
        first.leave()
        await asyncio.wait_for(waiting, 5)
        changed(rig)
        rig.hub.changed("lab", ListChange("prompts"))
        await asyncio.sleep(0)
        second, _ = rig.begin_get(session, first.events[0].id)
        await until(lambda: len(second.events) == 2)
        assert [each["method"].split("/")[1] for each in second.messages] == ["tools", "prompts"]


async def test_the_end_of_the_session_ends_its_stream() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        stream, waiting = rig.begin_get(session)
        await until(lambda: stream.opened)
        await rig.request(verb="DELETE", headers={"mcp-session-id": session})
        await asyncio.wait_for(waiting, 5)
        assert stream.closed
        assert rig.hub._ears == set()
        # Nobody may come back to it, so nothing of it waits for them.
        await until(lambda: not rig.standing._streams._streams)


async def test_a_stopping_server_ends_every_stream() -> None:
    async with Rig(FakeBackend()) as rig:
        stream, waiting = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        rig.hub.close()
        await asyncio.wait_for(waiting, 5)
        assert stream.closed


async def test_a_stream_that_nobody_came_back_to_is_given_up_after_a_minute() -> None:
    clock = Clock()
    async with Rig(FakeBackend()) as rig:
        stream, waiting = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        stream.leave()
        await asyncio.wait_for(waiting, 5)
        await clock.forward(KEPT_SECONDS - 1)
        assert len(rig.hub._ears) == 1
        await clock.forward(2)
        await until(lambda: not rig.hub._ears)
        assert rig.standing._pumps == {}


async def test_the_stream_that_replaced_another_lives_on_when_the_others_minute_is_over() -> None:
    clock = Clock()
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        first, waiting = rig.begin_get(session)
        await until(lambda: first.opened)
        second, _ = rig.begin_get(session)
        await asyncio.wait_for(waiting, 5)
        await until(lambda: second.opened)
        await clock.forward(KEPT_SECONDS + 1)
        await asyncio.sleep(0)
        changed(rig)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not second.closed
        await until(lambda: second.sent(CHANGED))


async def test_a_resumed_call_does_not_end_the_standing_stream() -> None:
    clock = Clock()
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        standing, _ = rig.begin_get(session)
        await until(lambda: standing.opened)
        headers = {"accept": "text/event-stream, application/json"}
        called = await rig.legacy(session, "tools/call", {"name": "lab_echo"}, headers=headers)
        _, waiting = rig.begin_get(session, called.events[0].id)
        await asyncio.wait_for(waiting, 5)
        await clock.forward(KEPT_SECONDS + 1)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not standing.closed


async def test_nothing_is_kept_of_a_stream_that_was_ended_for_not_being_read() -> None:
    async with Rig(FakeBackend()) as rig:
        stream, waiting = rig.begin_get(await rig.session())
        await until(lambda: stream.opened)
        for _ in range(BACKLOG + 1):
            changed(rig)
        await asyncio.wait_for(waiting, 5)
        assert rig.standing._pumps == {}
