"""Typed access to the results of the SDK's client."""

from typing import Any

from mcp import types


def text_of(content: types.ContentBlock | types.TextResourceContents | types.BlobResourceContents) -> str:
    """Return the text of a content block or of resource contents. Fails for every other type."""
    assert isinstance(content, types.TextContent | types.TextResourceContents)
    return content.text


async def list_all_tools(client: Any) -> list[Any]:
    """The tools of all pages."""
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools
