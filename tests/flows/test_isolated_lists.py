"""Servers that a tenant or a user has to itself: each sees its own server's lists, and hears of its own changes."""

import asyncio
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Running
from tests.peers.handshake import handshake
from tests.peers.notification_stream import subscribe_all, wait_for_text

SERVER = str(Path(__file__).parent / "fixtures" / "own_stdio.py")
ERAS = ("handshake", "modern")


def entry(era: str, isolation: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", SERVER, era], "isolation": isolation}


async def names(gateway: Running) -> set[str]:
    return set(re.findall(r'"name":"(far_\w+)"', (await gateway.post("tools/list")).text))


async def until_named(gateway: Running, name: str) -> None:
    async with asyncio.timeout(20):
        while name not in await names(gateway):
            await asyncio.sleep(0.01)


async def text(gateway: Running, tool: str, **arguments: Any) -> str:
    return (await gateway.call(tool, arguments))["result"]["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
async def test_each_tenant_or_user_sees_the_lists_of_its_own_process(start: Any, era: str) -> None:
    backends = {"far": entry(era, "user"), "near": entry(era, "tenant")}
    async with start(backends=backends, tenants={"default": {}, "other": {}}) as alice:
        bob = alice.as_(await alice.new_key(subject="bob"))
        carol = alice.as_(await alice.new_key("other", "carol"))
        seen = {}
        for who in (alice, bob, carol):
            listed = set(re.findall(r'"name":"((?:far|near)_of_\d+)"', (await who.post("tools/list")).text))
            assert len(listed) == 2
            mine, ours = sorted(listed)
            # The name leads to the very process that listed it.
            assert mine == f"far_of_{await text(who, mine)}"
            assert ours == f"near_of_{await text(who, ours)}"
            seen[who.key] = (mine, ours)
        assert len({mine for mine, _ in seen.values()}) == 3
        assert seen[alice.key][1] == seen[bob.key][1] != seen[carol.key][1]
        unknown = await bob.call(seen[alice.key][0])
        assert "Unknown tool" in unknown["error"]["message"]


@pytest.mark.parametrize("era", ERAS)
async def test_what_one_process_learns_only_its_owner_is_shown_and_told(start: Any, era: str) -> None:
    async with start(backends={"far": entry(era, "user")}) as alice:
        bob = alice.as_(await alice.new_key(subject="bob"))
        await names(bob)
        await names(alice)
        async with subscribe_all(alice) as told, subscribe_all(bob) as told_bob:
            await text(alice, "far_learn", name="sing")
            await until_named(alice, "far_sing")
            await wait_for_text(told, "tools/list_changed")
            assert await text(alice, "far_sing") == await text(alice, "far_learn", name="dance")
            await until_named(alice, "far_dance")
            # Bob's own news comes last: whatever he was told of Alice's would have come before it.
            await text(bob, "far_learn", name="paint")
            await until_named(bob, "far_paint")
            await wait_for_text(told_bob, "tools/list_changed")
        assert "".join(told_bob).count("tools/list_changed") == 1
        assert not {"far_sing", "far_dance"} & await names(bob)
        assert "far_paint" not in await names(alice)


async def test_a_client_that_can_do_more_is_shown_what_the_server_keeps_for_such(start: Any) -> None:
    async with start(backends={"far": entry("handshake", "tenant")}) as alice:
        async with handshake(alice.base, alice.key) as plain:
            assert "far_ask" not in str(await plain.request("tools/list"))
        async with handshake(alice.base, alice.key, elicitation={}) as able:
            assert "result" in await able.request("tools/call", {"name": "far_ask", "arguments": {}})
            assert "far_ask" in str(await able.request("tools/list"))


@pytest.mark.parametrize("era", ERAS)
async def test_the_lists_of_each_are_remembered_for_each(run: Any, tmp_path: Path, era: str) -> None:
    async with run(tmp_path, backends={"far": entry(era, "tenant")}, tenants={"default": {}, "other": {}}) as alice:
        carol = alice.as_(await alice.new_key("other", "carol"))
        await names(carol)
        await names(alice)
        await text(carol, "far_learn", name="sing")
        await until_named(carol, "far_sing")
    known = {whose: "sing" in lists for whose, lists in remembered(tmp_path)}
    assert known == {"shared": False, "tenant:default": False, "tenant:other": True}


def remembered(folder: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(folder / "data" / "gatehouse.db")) as rows:
        return rows.execute("SELECT whose, lists FROM catalogue_snapshots WHERE namespace = 'far'").fetchall()
