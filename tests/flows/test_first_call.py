"""The first steps of a new user: list the tools and call one, with the SDK's client in either era."""

from typing import Any


async def test_the_sdk_client_lists_and_calls_in_either_era(gateway: Any, era: str) -> None:
    async with gateway.client(era) as client:
        listed = await client.list_tools()
        assert {"core_ping", "project_workspace_stats"} <= {tool.name for tool in listed.tools}
        result = await client.call_tool("core_ping", {})
        assert not result.is_error
        assert result.structured_content["output"]["ok"] is True


async def test_tool_can_be_called_by_its_dotted_name(gateway: Any, era: str) -> None:
    async with gateway.client(era) as client:
        result = await client.call_tool("core.ping", {})
        assert result.structured_content["output"]["ok"] is True


async def test_namespace_endpoint_lists_tools_without_prefix(gateway: Any, era: str) -> None:
    async with gateway.client(era, path="/mcp/core") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ping"]
        assert (await client.call_tool("ping", {})).structured_content["output"]["ok"] is True
