"""The resources of the Gox contract: `gox://status`, `gox://runs` and `gox://runs/{runId}`."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    Resource,
    ResourceTemplate,
)

from backends.gox import registry, runlog
from gateway.contract import Host, Json, Store
from gateway.contract.distribution import installed_version
from gateway.errors import UnknownName

_JSON: Final = "application/json"
_STATUS: Final = "gox://status"
_RUNS: Final = "gox://runs"

_RESOURCES: Final = [
    Resource(
        uri=_STATUS, name="server_status", description="Server version, action count and Studios.", mime_type=_JSON
    ),
    Resource(uri=_RUNS, name="runlog_list", description="The hundred latest runs, newest first.", mime_type=_JSON),
]
_TEMPLATES: Final = [
    ResourceTemplate(
        uri_template=f"{_RUNS}/{{runId}}", name="runlog_item", description="The record of one run.", mime_type=_JSON
    )
]


ReadOutputs = Callable[[Store, str], Awaitable[list[Json]]]


def add_resources(server: Server[Any], host: Host, read_outputs: ReadOutputs) -> None:
    """Register the resource handlers on the server. `read_outputs` returns the step outputs of a workflow run."""

    async def list_resources(
        ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        return ListResourcesResult(resources=_RESOURCES)

    async def list_templates(
        ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=_TEMPLATES)

    async def read(ctx: ServerRequestContext[Any], params: ReadResourceRequestParams) -> Json:
        uri = str(params.uri)
        text = json.dumps(await _read(host, uri, read_outputs), ensure_ascii=False)
        return {"contents": [{"uri": uri, "mimeType": _JSON, "text": text}]}

    server.add_request_handler("resources/list", PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read)


async def _read(host: Host, uri: str, read_outputs: ReadOutputs) -> Json:
    store = host.store(host.current_call().caller)
    if uri == _STATUS:
        return _status(host)
    if uri == _RUNS:
        await registry.fail_orphaned_runs(host, store)
        return {"runs": await runlog.recent(store)}
    if uri.startswith(f"{_RUNS}/") and (record := await runlog.find(store, uri.removeprefix(f"{_RUNS}/"))):
        if record["type"] == "workflow":
            record["outputs"] = await read_outputs(store, record["runId"])
        return record
    raise UnknownName(f"Unknown resource: {uri[:128]}", uri=uri)


def _status(host: Host) -> Json:
    status: Json = {
        "version": installed_version(),
        "actionsCount": registry.count_actions(host),
        "serverTime": runlog.now(),
    }
    studios = registry.list_studios(host, host.current_call().caller)
    if studios is not None:
        status["bridge"] = {"connected": any(studio["connected"] for studio in studios), "studios": studios}
    return status
