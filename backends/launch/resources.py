"""The run's documents as resources: `resource://run/{run_id}/{name}`."""

import asyncio
import re
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.types import ListResourcesResult, ListResourceTemplatesResult, PaginatedRequestParams, ResourceTemplate

from backends.launch import artifacts
from backends.launch.run_store import Shelf
from gateway.contract import Caller, Json
from gateway.errors import Fault, UnknownName

_URI: Final = re.compile(r"resource://run/([^/?#]+)/([^/?#]+)")
_TEMPLATES: Final = (
    ("page_plan.json", "The pages that a run writes"),
    ("validation_report.json", "What the gates found in a run"),
    ("snapshot.json", "A run as its events tell it"),
    ("{name}", "Any artifact or report of a run"),
)


async def list_none(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListResourcesResult:
    """Runs are each tenant's own, and this list is everybody's."""
    return ListResourcesResult(resources=[])


async def list_templates(
    ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    found = [
        ResourceTemplate(
            name=f"run {name}",
            title=title,
            uri_template=f"resource://run/{{run_id}}/{name}",
            mime_type="application/json" if name.endswith(".json") else None,
        )
        for name, title in _TEMPLATES
    ]
    return ListResourceTemplatesResult(resource_templates=found)


async def read(shelf: Shelf, caller: Caller, uri: str) -> Json:
    found = _URI.fullmatch(uri)
    if found is None:
        raise UnknownName("There is no such resource.", uri=uri)
    try:
        run = await shelf.known(caller, found[1])
        artifact = await asyncio.to_thread(artifacts.read, run, found[2])
    except Fault as exc:
        raise UnknownName("There is no such resource.", uri=uri) from exc
    kind: str = artifact["content_type"]
    content: Json = {"uri": uri, "mimeType": kind.removesuffix(";base64")}
    content["blob" if kind.endswith(";base64") else "text"] = artifact["content"]
    return {"contents": [content]}
