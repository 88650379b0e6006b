"""A server of 2025-11-25 that wants an address opened first, in front of clients of both eras."""

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, types

FIXTURE = Path(__file__).parent / "fixtures" / "urls.py"
OLD = FIXTURE.with_name("odd_stdio.py")


@pytest.fixture(params=["module", "old"])
def entry(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "module":
        return {"module": "tests.flows.fixtures.urls"}
    return {"command": sys.executable, "args": ["-I", "-S", str(OLD)]}


class Person:
    def __init__(self, action: Any) -> None:
        self._action = action
        self.opened: list[types.ElicitRequestURLParams] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.opened.append(params)
        return types.ElicitResult(action=self._action)


async def _call(client: Client, rounds: int = 1) -> types.CallToolResult:
    return await client.call_tool("urls_files", {"rounds": rounds})


async def test_a_new_client_is_asked_to_open_the_address_and_its_next_try_succeeds(start: Any, entry: Any) -> None:
    async with start(backends={"urls": entry}) as gateway:
        await gateway.listed("urls_files")
        person = Person("accept")
        async with gateway.client("2026-07-28", elicitation_callback=person) as client:
            assert (await _call(client, 2)).content[0].text == "your files"
        assert [each.url for each in person.opened] == ["https://example.org/in"] * 2
        assert [each.message for each in person.opened] == ["Sign in first"] * 2


async def test_a_new_client_that_declines_ends_the_call(start: Any, entry: Any) -> None:
    async with start(backends={"urls": entry}) as gateway:
        await gateway.listed("urls_files")
        person = Person("decline")
        async with gateway.client("2026-07-28", elicitation_callback=person) as client:
            result = await _call(client)
        assert result.is_error
        assert len(person.opened) == 1


async def test_an_old_client_gets_the_servers_own_error(start: Any, entry: Any) -> None:
    async with start(backends={"urls": entry}) as gateway:
        await gateway.listed("urls_files")
        async with gateway.client("legacy", elicitation_callback=Person("accept")) as client:
            with pytest.raises(MCPError) as error:
                await _call(client, 9)
        assert error.value.error.code == -32042
        assert error.value.error.data["elicitations"][0]["elicitationId"] == "e-1"
