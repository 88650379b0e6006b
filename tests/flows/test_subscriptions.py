"""Each client's resource subscription uses its own upstream session, and only that client gets the updates."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.catalogue.uris import wrap
from tests.conftest import Running
from tests.flows.subscribable_server import NOTE, subscribable_server
from tests.peers.handshake import handshake
from tests.peers.notification_stream import get_stream, subscribe_all, wait_for_text

ERAS = ("handshake", "modern")
ISOLATED_SERVER = str(Path(__file__).parent / "fixtures" / "isolated_stdio.py")
UPDATED = "resources/updated"


NOTE_URI = wrap("far", NOTE, ())


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def touch(gateway: Running, era: str) -> None:
    if era == "modern":
        assert "result" in await gateway.call("far_touch")
        return
    async with handshake(gateway.base, gateway.key) as client:
        assert "result" in await client.request("tools/call", {"name": "far_touch", "arguments": {}})


@pytest.mark.parametrize("server_eras", [("handshake",), ("modern",), ERAS], ids="+".join)
@pytest.mark.parametrize("era", ERAS)
async def test_each_principal_has_its_own_subscription_and_gets_only_its_updates(
    start: Any, era: str, server_eras: tuple[str, ...]
) -> None:
    async with subscribable_server(*server_eras) as server, start(backends={"far": server.entry()}) as alice:
        await alice.wait_for_tool("far_touch")
        bob, carol = [alice.as_(await alice.new_key(subject=name)) for name in ("bob", "carol")]
        async with (
            subscribe_all(alice, NOTE_URI, era=era) as events,
            subscribe_all(bob, NOTE_URI, era=era) as bob_events,
        ):
            async with subscribe_all(carol, era=era) as carol_events:
                assert server.subscribers() == 2
                await touch(alice, era)
                await wait_for_text(events, UPDATED)
                assert NOTE_URI in "".join(events)
                before = "".join(bob_events).count(UPDATED)
                await touch(bob, era)
                await wait_for_text(bob_events, UPDATED, before + 1)
                if (era in server_eras and era == "handshake") or server_eras == ("handshake",):
                    # The server notified each client in its own session only.
                    assert ("".join(events).count(UPDATED), before) == (1, 0)
                assert UPDATED not in "".join(carol_events)
        await wait_until(lambda: server.subscribers() == 0)


async def test_subscription_is_renewed_after_the_server_loses_its_sessions(start: Any) -> None:
    async with subscribable_server("handshake") as server, start(backends={"far": server.entry()}) as alice:
        await alice.wait_for_tool("far_touch")
        async with subscribe_all(alice, NOTE_URI) as events:
            await server.drop_sessions()
            await wait_until(lambda: server.subscribers() == 1)
            await touch(alice, "modern")
            await wait_for_text(events, UPDATED)


async def test_upstream_subscription_ends_with_the_client_session(start: Any) -> None:
    async with subscribable_server("handshake") as server, start(backends={"far": server.entry()}) as alice:
        await alice.wait_for_tool("far_touch")
        async with handshake(alice.base, alice.key) as client:
            async with get_stream(client):
                await client.request("resources/subscribe", {"uri": NOTE_URI})
                assert server.subscribers() == 1
                await client.request("resources/unsubscribe", {"uri": NOTE_URI})
                await wait_until(lambda: server.subscribers() == 0)
                await client.request("resources/subscribe", {"uri": NOTE_URI})
                assert server.subscribers() == 1
                await client.http.delete(client.url, headers=client.headers)
                await wait_until(lambda: server.subscribers() == 0)


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_isolated_process_notifies_only_its_owner(start: Any, era: str, server_era: str) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", ISOLATED_SERVER, server_era], "isolation": "user"}
    shown = "gatehouse://far/own%3A%2F%2Fnote"
    async with start(backends={"far": entry}) as alice:
        await alice.wait_for_tool("far_touch")
        bob = alice.as_(await alice.new_key(subject="bob"))
        async with subscribe_all(alice, shown, era=era) as events, subscribe_all(bob, shown, era=era) as bob_events:
            await touch(alice, era)
            await wait_for_text(events, UPDATED)
            await touch(bob, era)
            await wait_for_text(bob_events, UPDATED)
            assert ["".join(each).count(UPDATED) for each in (events, bob_events)] == [1, 1]
