"""Serves the artifacts of runs as MCP resources: `resource://run/{run_id}/{name}`."""

import asyncio
import re
from typing import Final

from backends.launch import artifacts
from backends.launch.run_store import RunStore
from gateway.contract import Caller, Json
from gateway.errors import Fault, UnknownName

_URI: Final = re.compile(r"resource://run/([^/?#]+)/([^/?#]+)")


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
