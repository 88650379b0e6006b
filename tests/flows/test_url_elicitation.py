"""A server of 2025-11-25 that requires a URL elicitation, with clients of both eras."""

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, types

from tests.mcp_results import text_of

FIXTURE = Path(__file__).parent / "fixtures" / "url_elicitation.py"
OLD = FIXTURE.with_name("misbehaving_stdio.py")


@pytest.fixture(params=["module", "old"])
def entry(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "module":
        return {"module": "tests.flows.fixtures.url_elicitation"}
    return {"command": sys.executable, "args": ["-I", "-S", str(OLD)]}


class User:
    def __init__(self, action: Any) -> None:
        self._action = action
        self.opened: list[types.ElicitRequestURLParams] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.opened.append(params)
        return types.ElicitResult(action=self._action)


async def _call(client: Client, rounds: int = 1) -> types.CallToolResult:
    return await client.call_tool("urls_files", {"rounds": rounds})


async def test_modern_client_is_asked_to_open_the_url_and_the_retry_succeeds(start: Any, entry: Any) -> None:
    async with start(backends={"urls": entry}) as gateway:
        await gateway.wait_for_tool("urls_files")
        user = User("accept")
        async with gateway.client("2026-07-28", elicitation_callback=user) as client:
            assert text_of((await _call(client, 2)).content[0]) == "your files"
        assert [each.url for each in user.opened] == ["https://example.org/in"] * 2
        assert [each.message for each in user.opened] == ["Sign in first"] * 2


async def test_modern_client_that_declines_ends_the_call(start: Any, entry: Any) -> None:
    async with start(backends={"urls": entry}) as gateway:
        await gateway.wait_for_tool("urls_files")
        user = User("decline")
        async with gateway.client("2026-07-28", elicitation_callback=user) as client:
            result = await _call(client)
        assert result.is_error
        assert len(user.opened) == 1


async def test_handshake_client_gets_the_error_of_the_server(start: Any, entry: Any) -> None:
    async with start(backends={"urls": entry}) as gateway:
        await gateway.wait_for_tool("urls_files")
        async with gateway.client("legacy", elicitation_callback=User("accept")) as client:
            with pytest.raises(MCPError) as error:
                await _call(client, 9)
        assert error.value.error.code == -32042
        assert error.value.error.data["elicitations"][0]["elicitationId"] == "e-1"
