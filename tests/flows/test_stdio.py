"""Servers that run as child processes."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import types

FIXTURES = Path(__file__).parent / "fixtures"
SDK: dict[str, Any] = {"command": sys.executable, "args": [str(FIXTURES / "sdk_stdio.py")]}
ENTRY: dict[str, Any] = {"command": sys.executable, "args": ["-I", str(FIXTURES / "handwritten_stdio.py")]}


async def _accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def test_sdk_stdio_server_is_listed_and_called_in_either_era(start: Any) -> None:
    steps: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    async with start(backends={"child": SDK}) as gateway:
        await gateway.wait_for_tool("child_work")
        for era in ("2026-07-28", "legacy"):
            steps.clear()
            async with gateway.client(era) as client:
                assert "child_work" in {tool.name for tool in (await client.list_tools()).tools}
                result = await client.call_tool("child_work", {"steps": 3}, progress_callback=progress)
                assert result.content[0].text.startswith("3 steps")
            assert steps == [1, 2, 3]


async def test_handshake_server_can_elicit_from_a_client_of_either_era(start: Any) -> None:
    async with start(backends={"child": ENTRY}) as gateway:
        await gateway.wait_for_tool("child_greet")
        for era in ("2026-07-28", "legacy"):
            async with gateway.client(era, elicitation_callback=_accept) as client:
                assert (await client.call_tool("child_greet", {})).content[0].text == "Hello Ada"


async def test_process_that_dies_during_a_call_is_unavailable_and_the_next_call_works(start: Any) -> None:
    async with start(backends={"child": ENTRY}) as gateway:
        await gateway.wait_for_tool("child_work")
        first = (await gateway.call("child_work"))["result"]["content"][0]["text"]
        died = (await gateway.call("child_die"))["result"]
        assert died["isError"]
        assert died["structuredContent"]["error"]["kind"] == "unavailable"
        second = (await gateway.call("child_work"))["result"]["content"][0]["text"]
        assert second.startswith("3 steps")
        assert second != first


async def test_child_process_gets_a_clean_environment_and_its_configured_variables(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_CANARY", "secret")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/etc/ssl/certs/company.crt")
    async with start(backends={"child": {**ENTRY, "env": {"MINE": "1"}}}) as gateway:
        await gateway.wait_for_tool("child_work")
        names = (await gateway.call("child_environment"))["result"]["content"][0]["text"].split()
        assert "MINE" in names
        assert "GATEHOUSE_CANARY" not in names
        assert "NODE_EXTRA_CA_CERTS" in names, "downloads would fail behind a corporate certificate authority"


async def test_no_process_is_left_when_the_gateway_stops(start: Any) -> None:
    async with start(backends={"child": ENTRY}) as gateway:
        await gateway.wait_for_tool("child_work")
        text = (await gateway.call("child_work"))["result"]["content"][0]["text"]
        pid = int(text.rpartition(" ")[2])
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(("isolation", "shared"), [("tenant", True), ("user", False)])
async def test_users_share_a_process_only_with_tenant_isolation(start: Any, isolation: str, shared: bool) -> None:
    async with start(backends={"child": {**ENTRY, "isolation": isolation}}) as gateway:
        await gateway.wait_for_tool("child_work")
        other = gateway.as_(await gateway.new_key(subject="bob"))
        mine = (await gateway.call("child_work"))["result"]["content"][0]["text"]
        theirs = (await other.call("child_work"))["result"]["content"][0]["text"]
        assert (mine == theirs) is shared
