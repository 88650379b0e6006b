"""Typed access to the results of the SDK's client."""

from mcp import types


def text_of(content: types.ContentBlock | types.TextResourceContents | types.BlobResourceContents) -> str:
    """Return the text of a content block or of resource contents. Fails for every other type."""
    assert isinstance(content, types.TextContent | types.TextResourceContents)
    return content.text
