"""What a client subscribes to it subscribes to in a session of its own with the server, and it alone is told."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.catalogue.uris import wrap
from tests.conftest import Running
from tests.flows.noting import NOTE, noting
from tests.peers.handshake import handshake
from tests.peers.notification_stream import get_stream, subscribe_all, wait_for_text

ERAS = ("handshake", "modern")
OWN = str(Path(__file__).parent / "fixtures" / "own_stdio.py")
UPDATED = "resources/updated"


SHOWN = wrap("far", NOTE, ())


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not fact():
            await asyncio.sleep(0.01)


async def touch(gateway: Running, era: str) -> None:
    if era == "modern":
        assert "result" in await gateway.call("far_touch")
        return
    async with handshake(gateway.base, gateway.key) as client:
        assert "result" in await client.request("tools/call", {"name": "far_touch", "arguments": {}})


@pytest.mark.parametrize("far", [("handshake",), ("modern",), ERAS], ids="+".join)
@pytest.mark.parametrize("era", ERAS)
async def test_each_principal_subscribes_for_itself_and_hears_only_what_it_asked_for(
    start: Any, era: str, far: tuple[str, ...]
) -> None:
    async with noting(*far) as server, start(backends={"far": server.entry()}) as alice:
        await alice.listed("far_touch")
        bob, carol = [alice.as_(await alice.new_key(subject=name)) for name in ("bob", "carol")]
        async with subscribe_all(alice, SHOWN, era=era) as told, subscribe_all(bob, SHOWN, era=era) as told_bob:
            async with subscribe_all(carol, era=era) as told_carol:
                assert server.subscribers() == 2
                await touch(alice, era)
                await wait_for_text(told, UPDATED)
                assert SHOWN in "".join(told)
                before = "".join(told_bob).count(UPDATED)
                await touch(bob, era)
                await wait_for_text(told_bob, UPDATED, before + 1)
                if (era in far and era == "handshake") or far == ("handshake",):
                    # The server told each in its own session alone.
                    assert ("".join(told).count(UPDATED), before) == (1, 0)
                assert UPDATED not in "".join(told_carol)
        await until(lambda: server.subscribers() == 0)


async def test_a_server_that_forgot_its_sessions_is_subscribed_to_again(start: Any) -> None:
    async with noting("handshake") as server, start(backends={"far": server.entry()}) as alice:
        await alice.listed("far_touch")
        async with subscribe_all(alice, SHOWN) as told:
            await server.forget()
            await until(lambda: server.subscribers() == 1)
            await touch(alice, "modern")
            await wait_for_text(told, UPDATED)


async def test_a_subscription_ends_with_the_stream_that_could_tell_of_it(start: Any) -> None:
    async with noting("handshake") as server, start(backends={"far": server.entry()}) as alice:
        await alice.listed("far_touch")
        async with handshake(alice.base, alice.key) as client:
            async with get_stream(client):
                await client.request("resources/subscribe", {"uri": SHOWN})
                assert server.subscribers() == 1
                await client.request("resources/unsubscribe", {"uri": SHOWN})
                await until(lambda: server.subscribers() == 0)
                await client.request("resources/subscribe", {"uri": SHOWN})
                assert server.subscribers() == 1
                await client.http.delete(client.url, headers=client.headers)
                await until(lambda: server.subscribers() == 0)


@pytest.mark.parametrize("far", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_process_of_ones_own_is_subscribed_to_by_its_owner_alone(start: Any, era: str, far: str) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", OWN, far], "isolation": "user"}
    shown = "gatehouse://far/own%3A%2F%2Fnote"
    async with start(backends={"far": entry}) as alice:
        await alice.listed("far_touch")
        bob = alice.as_(await alice.new_key(subject="bob"))
        async with subscribe_all(alice, shown, era=era) as told, subscribe_all(bob, shown, era=era) as told_bob:
            await touch(alice, era)
            await wait_for_text(told, UPDATED)
            await touch(bob, era)
            await wait_for_text(told_bob, UPDATED)
            assert ["".join(each).count(UPDATED) for each in (told, told_bob)] == [1, 1]
