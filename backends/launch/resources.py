"""Serves the artifacts of runs as MCP resources: `resource://run/{run_id}/{name}`."""

import asyncio
import re
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.types import ListResourcesResult, ListResourceTemplatesResult, PaginatedRequestParams, ResourceTemplate

from backends.launch import artifacts
from backends.launch.run_store import RunStore
from gateway.contract import Caller, Json
from gateway.errors import Fault, UnknownName

_URI: Final = re.compile(r"resource://run/([^/?#]+)/([^/?#]+)")
_TEMPLATES: Final = (
    ("page_plan.json", "Page plan of a run"),
    ("validation_report.json", "Validation report of a run"),
    ("snapshot.json", "Snapshot of a run"),
    ("{name}", "Any artifact or report of a run"),
)


async def list_resources(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListResourcesResult:
    """Return an empty list: runs belong to one tenant, but the list is cached for all tenants."""
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


async def read(run_store: RunStore, caller: Caller, uri: str) -> Json:
    """Return the contents of a resource. Raises `UnknownName` for an unknown run or artifact."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise UnknownName("There is no such resource.", uri=uri)
    try:
        run = await run_store.get(caller, found[1])
        artifact = await asyncio.to_thread(artifacts.read, run, found[2])
    except Fault as exc:
        raise UnknownName("There is no such resource.", uri=uri) from exc
    kind: str = artifact["content_type"]
    content: Json = {"uri": uri, "mimeType": kind.removesuffix(";base64")}
    content["blob" if kind.endswith(";base64") else "text"] = artifact["content"]
    return {"contents": [content]}
