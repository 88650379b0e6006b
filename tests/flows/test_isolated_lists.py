"""Servers isolated per tenant or user: each owner sees the lists and the changes of its own server only."""

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

SERVER = str(Path(__file__).parent / "fixtures" / "isolated_stdio.py")
ERAS = ("handshake", "modern")


def entry(era: str, isolation: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", SERVER, era], "isolation": isolation}


async def names(gateway: Running) -> set[str]:
    return set(re.findall(r'"name":"(far_\w+)"', (await gateway.post("tools/list")).text))


async def wait_for_tool(gateway: Running, name: str) -> None:
    async with asyncio.timeout(20):
        while name not in await names(gateway):
            await asyncio.sleep(0.01)


async def call_text(gateway: Running, tool: str, **arguments: Any) -> str:
    return (await gateway.call(tool, arguments))["result"]["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
async def test_each_tenant_or_user_sees_the_lists_of_its_own_process(start: Any, era: str) -> None:
    backends = {"far": entry(era, "user"), "near": entry(era, "tenant")}
    async with start(backends=backends, tenants={"default": {}, "other": {}}) as alice:
        bob = alice.as_(await alice.new_key(subject="bob"))
        carol = alice.as_(await alice.new_key("other", "carol"))
        seen = {}
        for user in (alice, bob, carol):
            listed = set(re.findall(r'"name":"((?:far|near)_of_\d+)"', (await user.post("tools/list")).text))
            assert len(listed) == 2
            mine, ours = sorted(listed)
            # A call of the name reaches the process that listed it.
            assert mine == f"far_of_{await call_text(user, mine)}"
            assert ours == f"near_of_{await call_text(user, ours)}"
            seen[user.key] = (mine, ours)
        assert len({mine for mine, _ in seen.values()}) == 3
        assert seen[alice.key][1] == seen[bob.key][1] != seen[carol.key][1]
        unknown = await bob.call(seen[alice.key][0])
        assert "Unknown tool" in unknown["error"]["message"]


@pytest.mark.parametrize("era", ERAS)
async def test_list_change_of_an_isolated_process_is_visible_to_its_owner_only(start: Any, era: str) -> None:
    async with start(backends={"far": entry(era, "user")}) as alice:
        bob = alice.as_(await alice.new_key(subject="bob"))
        await names(bob)
        await names(alice)
        async with subscribe_all(alice) as events, subscribe_all(bob) as bob_events:
            await call_text(alice, "far_learn", name="sing")
            await wait_for_tool(alice, "far_sing")
            await wait_for_text(events, "tools/list_changed")
            assert await call_text(alice, "far_sing") == await call_text(alice, "far_learn", name="dance")
            await wait_for_tool(alice, "far_dance")
            # Bob's own change comes last: a notification of Alice's changes would have arrived before it.
            await call_text(bob, "far_learn", name="paint")
            await wait_for_tool(bob, "far_paint")
            await wait_for_text(bob_events, "tools/list_changed")
        assert "".join(bob_events).count("tools/list_changed") == 1
        assert not {"far_sing", "far_dance"} & await names(bob)
        assert "far_paint" not in await names(alice)


async def test_client_with_elicitation_sees_the_tools_that_require_it(start: Any) -> None:
    async with start(backends={"far": entry("handshake", "tenant")}) as alice:
        async with handshake(alice.base, alice.key) as plain:
            assert "far_ask" not in str(await plain.request("tools/list"))
        async with handshake(alice.base, alice.key, elicitation={}) as able:
            assert "result" in await able.request("tools/call", {"name": "far_ask", "arguments": {}})
            assert "far_ask" in str(await able.request("tools/list"))


@pytest.mark.parametrize("era", ERAS)
async def test_lists_are_stored_per_isolation_key(run: Any, tmp_path: Path, era: str) -> None:
    async with run(tmp_path, backends={"far": entry(era, "tenant")}, tenants={"default": {}, "other": {}}) as alice:
        carol = alice.as_(await alice.new_key("other", "carol"))
        await names(carol)
        await names(alice)
        await call_text(carol, "far_learn", name="sing")
        await wait_for_tool(carol, "far_sing")
    known = {owner: "sing" in lists for owner, lists in stored_lists(tmp_path)}
    assert known == {"shared": False, "tenant:default": False, "tenant:other": True}


def stored_lists(folder: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(folder / "data" / "gatehouse.db")) as rows:
        return rows.execute("SELECT whose, lists FROM catalogue_snapshots WHERE namespace = 'far'").fetchall()
