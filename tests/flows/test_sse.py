"""Servers of the transport before streamable HTTP: one event stream a session, messages posted beside it."""

import asyncio
from typing import Any

import pytest
from mcp import types

from tests.flows.killable import program
from tests.flows.sse import serving


async def _accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


def entry(port: int, **more: Any) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{port}/sse", "allow_private": True, **more}


def text(answer: dict[str, Any]) -> str:
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("named", [{"transport": "sse"}, {"type": "sse"}, {}], ids=["transport", "type", "found out"])
async def test_it_is_listed_and_called_in_either_era_named_as_such_or_found_out(start: Any, named: Any) -> None:
    told: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(done)

    async with serving() as port, start(backends={"older": entry(port, **named)}) as gateway:
        await gateway.listed("older_work")
        for era in ("2026-07-28", "legacy"):
            told.clear()
            async with gateway.client(era, elicitation_callback=_accept) as client:
                assert (await client.call_tool("older_greet", {})).content[0].text == "Hello Ada"
                result = await client.call_tool("older_work", {"steps": 3}, progress_callback=progress)
                assert result.content[0].text.startswith("3 steps")
            assert told == [1, 2, 3]
        health = gateway.house._backends.get("older").health()
        assert (health.state, health.transport, health.eras) == ("up", "sse", ("handshake",))


async def test_no_two_principals_share_a_session(start: Any) -> None:
    async with serving() as port, start(backends={"older": entry(port)}) as gateway:
        await gateway.listed("older_work")
        other = gateway.as_(await gateway.new_key(subject="bob"))
        mine, theirs, again = [text(await who.call("older_work")) for who in (gateway, other, gateway)]
        assert mine == again
        assert mine != theirs


async def test_a_server_killed_in_mid_call_is_unavailable_at_once_and_the_next_call_works(start: Any) -> None:
    with program("-m", "tests.flows.sse") as server:
        await server.listens()
        async with start(backends={"older": entry(server.port, transport="sse")}) as gateway:
            await gateway.listed("older_wait")
            backend = gateway.house._backends.get("older")
            call = asyncio.create_task(gateway.call("older_wait"))
            while not backend.health().in_flight:
                await asyncio.sleep(0.005)
            server.kill()
            async with asyncio.timeout(1):
                failed = (await call)["result"]
            assert failed["_meta"]["gatehouse/error"]["kind"] == "unavailable"
            assert (backend.health().state, backend.health().last_error) == ("failing", "unavailable")
            await server.start()
            assert text(await gateway.call("older_work")).startswith("3 steps")
            assert (backend.health().state, backend.health().last_error) == ("up", "unavailable")
