"""The bytes a client sends in either era, and whether an answer is the right one."""

import json
from dataclasses import dataclass
from typing import Any, Literal

Era = Literal["modern", "handshake"]

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"

FIRST_NUMBER = 10_000_000
"""Calls are numbered with eight digits, so that every request of a connection has the same length."""

_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True)
class Door:
    """Where a connection calls, in which era, and as whom."""

    port: int
    era: Era
    tool: str
    key: str | None = None


def call_template(door: Door, session: str | None = None) -> bytes:
    """A whole `tools/call` with two `%d` for the call's number: its id, and the end of its text."""
    params: dict[str, Any] = {"name": door.tool, "arguments": {"text": "hello TEXT"}}
    if door.era == "modern":
        params["_meta"] = _META
    message = _encode({"jsonrpc": "2.0", "id": "ID", "method": "tools/call", "params": params})
    numbered = message.replace(b"%", b"%%").replace(b'"ID"', b"%d").replace(b"TEXT", b"%d")
    length = len(numbered % (FIRST_NUMBER, FIRST_NUMBER))
    return _head(door, "POST", length, _call_headers(door, session)).replace(b"%", b"%%") + numbered


def initialize(door: Door) -> bytes:
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    return _post(door, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, [])


def initialized(door: Door, session: str) -> bytes:
    return _post(door, {"jsonrpc": "2.0", "method": "notifications/initialized"}, _session_headers(session))


def listen(door: Door) -> bytes:
    """Opens a stream that stays idle: `subscriptions/listen` in the 2026-07-28 era."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": _META}
    headers = [f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: subscriptions/listen"]
    return _post(door, {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}, headers)


def get_stream(door: Door, session: str) -> bytes:
    """Opens a stream that stays idle: the GET of the handshake era."""
    return _head(door, "GET", 0, _session_headers(session))


def complaint(status: int, body: bytes, number: int) -> str | None:
    """What is wrong with an answer, decoded whole; None when it is the right one."""
    try:
        answer = json.loads(body)
        right = (
            status == 200
            and answer["id"] == number
            and answer["result"]["content"] == [{"type": "text", "text": f"hello {number}"}]
            and not answer["result"].get("isError")
        )
    except (ValueError, KeyError, TypeError):
        right = False
    return None if right else f"HTTP {status}: {body[:300].decode(errors='replace')}"


def _call_headers(door: Door, session: str | None) -> list[str]:
    if door.era == "modern":
        return [f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", f"Mcp-Name: {door.tool}"]
    assert session is not None
    return _session_headers(session)


def _session_headers(session: str) -> list[str]:
    version = f"MCP-Protocol-Version: {HANDSHAKE}"
    return [version, f"Mcp-Session-Id: {session}"] if session else [version]


def _post(door: Door, message: dict[str, Any], headers: list[str]) -> bytes:
    body = _encode(message)
    return _head(door, "POST", len(body), headers) + body


def _head(door: Door, verb: str, length: int, headers: list[str]) -> bytes:
    lines = [
        f"{verb} /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{door.port}",
        "Accept: text/event-stream" if verb == "GET" else "Accept: application/json, text/event-stream",
        *headers,
    ]
    if verb == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {length}"]
    if door.key is not None:
        lines.append(f"Authorization: Bearer {door.key}")
    return "\r\n".join([*lines, "", ""]).encode()


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
