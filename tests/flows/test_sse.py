"""Servers with the HTTP+SSE transport (2024-11-05): one event stream per session, and messages in separate POSTs."""

import asyncio
from typing import Any

import pytest
from mcp import types

from tests.flows.killable_server import killable_server
from tests.flows.sse import serving


async def _accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


def entry(port: int, **more: Any) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{port}/sse", "allow_private": True, **more}


def text(answer: dict[str, Any]) -> str:
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("options", [{"transport": "sse"}, {"type": "sse"}, {}], ids=["transport", "type", "detected"])
async def test_sse_server_is_listed_and_called_in_either_era_with_configured_or_detected_transport(
    start: Any, options: Any
) -> None:
    steps: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    async with serving() as port, start(backends={"older": entry(port, **options)}) as gateway:
        await gateway.wait_for_tool("older_work")
        for era in ("2026-07-28", "legacy"):
            steps.clear()
            async with gateway.client(era, elicitation_callback=_accept) as client:
                assert (await client.call_tool("older_greet", {})).content[0].text == "Hello Ada"
                result = await client.call_tool("older_work", {"steps": 3}, progress_callback=progress)
                assert result.content[0].text.startswith("3 steps")
            assert steps == [1, 2, 3]
        health = gateway.app._backends.get("older").health()
        assert (health.state, health.transport, health.eras) == ("up", "sse", ("handshake",))


async def test_principals_do_not_share_an_upstream_session(start: Any) -> None:
    async with serving() as port, start(backends={"older": entry(port)}) as gateway:
        await gateway.wait_for_tool("older_work")
        other = gateway.as_(await gateway.new_key(subject="bob"))
        mine, theirs, again = [text(await user.call("older_work")) for user in (gateway, other, gateway)]
        assert mine == again
        assert mine != theirs


async def test_server_killed_during_a_call_is_unavailable_at_once_and_the_next_call_works(start: Any) -> None:
    with killable_server("-m", "tests.flows.sse") as server:
        await server.wait_until_listening()
        async with start(backends={"older": entry(server.port, transport="sse")}) as gateway:
            await gateway.wait_for_tool("older_wait")
            backend = gateway.app._backends.get("older")
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
