"""The fixture's resources."""

import json
import re
from typing import Final

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from tests.conformance.content import blob
from tests.conformance.exchange import Context, modern

_NOT_FOUND_BEFORE_2026: Final = -32002
_TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data")

_TEXTS: Final = {
    "test://static-text": "This is the content of the static text resource.",
    "test://watched-resource": "This is the content of the watched resource.",
}


async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(
        resources=[
            Resource(uri="test://static-text", name="static-text", description="Plain text.", mime_type="text/plain"),
            Resource(uri="test://static-binary", name="static-binary", description="A picture.", mime_type="image/png"),
            Resource(
                uri="test://watched-resource",
                name="watched-resource",
                description="Can be subscribed to.",
                mime_type="text/plain",
            ),
        ]
    )


async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(
        resource_templates=[
            ResourceTemplate(
                uri_template="test://template/{id}/data",
                name="template",
                description="Data for an id.",
                mime_type="application/json",
            )
        ]
    )


async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    contents = _contents(params.uri)
    if contents is None:
        code = INVALID_PARAMS if modern(ctx) else _NOT_FOUND_BEFORE_2026
        raise MCPError(code, "Resource not found", {"uri": params.uri})
    return ReadResourceResult(contents=[contents])


def _contents(uri: str) -> TextResourceContents | BlobResourceContents | None:
    if uri == "test://static-binary":
        return blob(uri)
    if text := _TEXTS.get(uri):
        return TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    if match := _TEMPLATE.fullmatch(uri):
        data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
        return TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
    return None
