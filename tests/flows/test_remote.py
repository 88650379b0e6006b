"""A gateway in front of a remote MCP server: a second gateway, which supports every protocol revision."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import types

ASKING = {"asking": {"module": "tests.flows.fixtures.eliciting"}, "core": {"module": "backends.core"}}


async def _accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


@asynccontextmanager
async def chain(run: Any, folder: Path, **more: Any) -> AsyncIterator[tuple[Any, Any]]:
    async with run(folder / "far", backends=ASKING) as far:
        entry = {
            "url": far.url,
            "allow_private": True,
            "headers": {"Authorization": f"Bearer {far.key}"},
            **more,
        }
        async with run(folder / "near", backends={"far": entry}) as near:
            await near.wait_for_tool("far_core_ping")
            yield near, far


async def test_remote_tools_are_listed_and_called_in_either_era(run: Any, tmp_path: Path) -> None:
    async with chain(run, tmp_path) as (near, _):
        for era in ("2026-07-28", "legacy"):
            async with near.client(era, elicitation_callback=_accept) as client:
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert {"far_core_ping", "far_asking_greet"} <= names
                assert (await client.call_tool("far_core_ping", {})).structured_content["output"]["ok"] is True
                assert (await client.call_tool("far_asking_greet", {})).content[0].text == "Hello Ada"


async def test_correlation_id_and_errors_pass_through_two_gateways(run: Any, tmp_path: Path) -> None:
    async with chain(run, tmp_path) as (near, far):
        direct = (await far.call("core_ping", {"odd": 1}, {"correlationId": "abc"}))["error"]
        through = (await near.call("far_core_ping", {}, {"correlationId": "abc"}))["result"]
        assert through["_meta"]["correlation_id"] == "abc"
        refused = (await near.call("far_core_ping", {"odd": 1}))["result"]
        # The near gateway validates against the same schema first and returns its own error.
        assert refused["isError"]
        assert direct["data"]["validation_rule"] == "additionalProperties"


async def test_threat_4_client_token_is_never_sent_upstream(run: Any, tmp_path: Path) -> None:
    async with chain(run, tmp_path) as (near, far):
        await near.call("far_core_ping")
        assert near.key not in far.log.getvalue()
        assert '"principal":"default/user:alice"' in far.log.getvalue()


async def test_stopped_server_is_unavailable_at_once_and_stays_listed(run: Any, tmp_path: Path) -> None:
    async with run(tmp_path / "far", backends=ASKING) as far:
        entry = {"url": far.url, "allow_private": True, "headers": {"Authorization": f"Bearer {far.key}"}}
        near_context = run(tmp_path / "near", backends={"far": entry})
        near = await near_context.__aenter__()
        await near.wait_for_tool("far_core_ping")
    try:
        failed = (await near.call("far_asking_greet"))["result"]
        assert failed["isError"]
        assert failed["_meta"]["gatehouse/error"]["kind"] == "unavailable"
        assert "far_core_ping" in (await near.post("tools/list")).text
    finally:
        await near_context.__aexit__(None, None, None)


async def test_threat_13_private_address_is_rejected_unless_the_entry_allows_it(start: Any) -> None:
    with pytest.raises(Exception, match=r"backends\.far\.url"):
        async with start(backends={"far": {"url": "http://127.0.0.1:9/mcp"}}):
            pass
