"""A backend of the Gox contract whose actions do as a test says."""

import asyncio
from typing import Any

from mcp.server import Server

from backends.gox.action import MIGRATIONS, WORDS, Action, Request, action_server, closed
from gateway.contract import Host, Json, Manifest
from gateway.errors import Fault, Kind

manifest = Manifest(
    error_style="protocol", codes=WORDS, store="gox", migrations=MIGRATIONS, effects={"fail": 0, "write": 2}
)
written: list[Request] = []
gates: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


def forget() -> None:
    written.clear()
    gates.clear()


async def _fail(request: Request) -> Json:
    word = request.arguments["kind"]
    if word == "defect":
        raise RuntimeError("a secret path /etc/passwd")
    raise Fault(Kind(word), f"as asked: {word}", details={"asked": word})


async def _write(request: Request) -> Json:
    """With `gate`, waits for it; with `fails`, fails that many times."""
    written.append(request)
    if (name := request.arguments.get("gate")) is not None:
        gate(f"{name}:begun").set()
        await gate(name).wait()
    if len(written) <= request.arguments.get("fails", 0):
        raise Fault(Kind.INTERNAL, "not yet")
    return {"count": len(written), "diffSummary": f"wrote {len(written)}"}


def server(home: Host) -> Server[Any]:
    anything: Json = {"type": "object"}
    text: Json = {"type": "string"}
    fail = Action("fail", "Fail", "Fails.", "read", _fail, closed({"kind": text}, ("kind",)), anything)
    takes = closed({"gate": text, "fails": {"type": "integer"}, "value": {}})
    write = Action("write", "Write", "Writes.", "write", _write, takes, anything)
    return action_server(home, "sandbox", [write, fail])
