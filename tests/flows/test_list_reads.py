"""Calls of unknown names make the gateway read lists at most now and then, and for their own tenant's account."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.catalogue.catalogue import REREAD_SECONDS
from tests.conftest import Running
from tests.peers.raw_server import RawServer, raw_server

Json = dict[str, Any]


def tool(name: str) -> Json:
    return {"name": name, "description": "Does it.", "inputSchema": {"type": "object"}}


def reads(raw: RawServer) -> int:
    return len(raw.params_of("tools/list"))


async def is_unknown(gateway: Running, name: str) -> bool:
    return (await gateway.call(name)).get("error", {}).get("code") == -32602


async def forget_reads(gateway: Running) -> None:
    """Have the last read of every list be long ago, as it is between two periodic reads."""
    gateway.app.catalogue._read_at.clear()


@pytest.mark.parametrize("gap", [0.0, REREAD_SECONDS])
async def test_threat_45_twenty_unknown_names_read_the_lists_once(run: Any, tmp_path: Path, gap: float) -> None:
    async with raw_server(tools=[tool("draw")]) as raw, raw_server(tools=[tool("draw")]) as other:
        backends = {"raw": raw.entry(), "other": other.entry()}
        async with run(tmp_path, backends=backends, catalogue={"ttl": 3600}) as gateway:
            await gateway.wait_for_tool("raw_draw")
            await gateway.wait_for_tool("other_draw")
            before, other_before = reads(raw), reads(other)
            for number in range(20):
                if gap:  # each call comes as late as the limit per second would allow another read
                    await forget_reads(gateway)
                assert await is_unknown(gateway, f"raw_unknown{number}")
            assert reads(raw) - before == (1 if gap else 0)
            assert reads(other) == other_before, "the name belongs to another backend"


async def test_threat_45_unknown_names_of_one_tenant_do_not_delay_the_new_tool_of_another(
    run: Any, tmp_path: Path
) -> None:
    async with raw_server(tools=[tool("draw")]) as raw:
        raw.answers = {"tools/call": {"content": [], "resultType": "complete"}}
        settings = {"backends": {"raw": raw.entry()}, "tenants": {"default": {}, "other": {}}}
        async with run(tmp_path, catalogue={"ttl": 3600}, **settings) as gateway:
            await gateway.wait_for_tool("raw_draw")
            victim = gateway.as_(await gateway.new_key("other"))
            await forget_reads(gateway)
            assert await is_unknown(gateway, "raw_unknown")
            raw.tools.append(tool("paint"))
            await forget_reads(gateway)
            assert await is_unknown(gateway, "raw_unknown")
            assert "result" in await victim.call("raw_paint")


async def test_concurrent_calls_of_a_new_tool_share_one_read(run: Any, tmp_path: Path) -> None:
    async with raw_server(tools=[tool("draw")]) as raw:
        raw.answers = {"tools/call": {"content": [], "resultType": "complete"}}
        async with run(tmp_path, backends={"raw": raw.entry()}, catalogue={"ttl": 3600}) as gateway:
            await gateway.wait_for_tool("raw_draw")
            raw.tools.append(tool("paint"))
            await forget_reads(gateway)
            before = reads(raw)
            answers = await asyncio.gather(*(gateway.call("raw_paint") for _ in range(10)))
            assert all("result" in each for each in answers)
            assert reads(raw) == before + 1
