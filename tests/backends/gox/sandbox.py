"""A Gox backend whose actions are controlled by tests."""

import asyncio
from typing import Any

from mcp.server import Server

from backends.gox.action import ERROR_CODES, MIGRATIONS, Action, Request, action_server, closed_schema
from gateway.contract import Host, Json, Manifest
from gateway.errors import Fault, Kind

manifest = Manifest(
    error_style="protocol", codes=ERROR_CODES, store="gox", migrations=MIGRATIONS, effects={"fail": 0, "write": 2}
)
written: list[Request] = []
gates: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


def reset() -> None:
    written.clear()
    gates.clear()


async def _fail(request: Request) -> Json:
    kind = request.arguments["kind"]
    if kind == "defect":
        raise RuntimeError("a secret path /etc/passwd")
    raise Fault(Kind(kind), f"requested fault: {kind}", details={"requested": kind})


async def _write(request: Request) -> Json:
    """Record the request. With `gate`, wait until the test opens it; with `fails`, fail that many times first."""
    written.append(request)
    if (name := request.arguments.get("gate")) is not None:
        gate(f"{name}:begun").set()
        await gate(name).wait()
    if len(written) <= request.arguments.get("fails", 0):
        raise Fault(Kind.INTERNAL, "not yet")
    return {"count": len(written), "diffSummary": f"wrote {len(written)}"}


def server(host: Host) -> Server[Any]:
    anything: Json = {"type": "object"}
    text: Json = {"type": "string"}
    fail = Action("fail", "Fail", "Fails.", "read", _fail, closed_schema({"kind": text}, ("kind",)), anything)
    takes = closed_schema({"gate": text, "fails": {"type": "integer"}, "value": {}})
    write = Action("write", "Write", "Writes.", "write", _write, takes, anything)
    return action_server(host, "sandbox", [write, fail])
