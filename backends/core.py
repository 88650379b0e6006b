"""The actions that every gateway offers: `core.ping` and `project.workspace_stats`."""

import asyncio
import os
from pathlib import Path
from typing import Any

from mcp.server import Server
from pydantic import BaseModel, ConfigDict, Field

from backends.gox import runlog
from backends.gox.action import ERROR_CODES, MIGRATIONS, Action, Request, action_server, closed_schema
from gateway.contract import Host, Json, Manifest
from gateway.errors import Fault, Kind

MAX_ENTRIES = 1_000_000


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    root: Path | None = Field(
        default=None,
        description="Folder that workspace_stats counts. Default: the working folder when the gateway serves only"
        " this machine, otherwise the tenant's folder.",
    )


manifest = Manifest(
    error_style="protocol",
    codes=ERROR_CODES,
    options=Options,
    store="gox",
    effects={"ping": 0, "workspace_stats": 0},
    migrations=MIGRATIONS,
)


def server(host: Host) -> Server[Any]:
    """Build the `core` backend."""
    ping = Action(
        name="ping",
        title="Ping",
        description="Return the server's time, to check that the gateway responds.",
        side_effect="none",
        run=_ping,
        input_schema=closed_schema({}),
        output_schema={
            "type": "object",
            "properties": {"ok": {"type": "boolean"}, "serverTime": {"type": "string"}},
            "required": ["ok", "serverTime"],
        },
    )
    return action_server(host, "core", [ping])


def project(host: Host) -> Server[Any]:
    """Build the `project` backend."""

    async def workspace_stats(request: Request) -> Json:
        root = _root(host)
        files, directories = await asyncio.to_thread(_count, root)
        return {"root": str(root), "files": files, "directories": directories}

    stats = Action(
        name="workspace_stats",
        title="Workspace statistics",
        description="Count the files and directories of the workspace.",
        side_effect="read",
        run=workspace_stats,
        input_schema=closed_schema({}),
        output_schema={
            "type": "object",
            "properties": {
                "root": {"type": "string"},
                "files": {"type": "integer"},
                "directories": {"type": "integer"},
            },
            "required": ["root", "files", "directories"],
        },
    )
    return action_server(host, "project", [stats])


async def _ping(request: Request) -> Json:
    return {"ok": True, "serverTime": runlog.now()}


def _root(host: Host) -> Path:
    options: Options = host.options
    if options.root is not None:
        return options.root
    return Path.cwd() if host.loopback else host.folder(host.current_call().caller)


def _count(root: Path) -> tuple[int, int]:
    """Count the files and directories below `root`, excluding `root` itself; symbolic links are not followed."""
    files = directories = 0
    for _, folders, names in os.walk(root, onerror=_raise_if_root_unreadable(root)):
        directories += len(folders)
        files += len(names)
        if files + directories > MAX_ENTRIES:
            raise Fault(Kind.TOO_LARGE, f"The workspace has more than {MAX_ENTRIES} entries.")
    return files, directories


def _raise_if_root_unreadable(root: Path) -> Any:
    def on_error(exc: OSError) -> None:
        if exc.filename == str(root):
            raise Fault(Kind.UNAVAILABLE, "The workspace cannot be read.") from exc

    return on_error
