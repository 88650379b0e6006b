"""Encodes client requests of both protocol eras and validates responses."""

import json
from dataclasses import dataclass
from typing import Any, Literal

Era = Literal["modern", "handshake"]

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"

FIRST_NUMBER = 10_000_000
"""Call numbers have eight digits, so that all requests of a connection have the same length."""

_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The target of a connection: port, protocol era, tool and API key."""

    port: int
    era: Era
    tool: str
    key: str | None = None


def call_template(endpoint: Endpoint, session: str | None = None) -> bytes:
    """Return a `tools/call` request with two `%d` for the call number: in the id and in the text."""
    params: dict[str, Any] = {"name": endpoint.tool, "arguments": {"text": "hello TEXT"}}
    if endpoint.era == "modern":
        params["_meta"] = _META
    message = _encode({"jsonrpc": "2.0", "id": "ID", "method": "tools/call", "params": params})
    numbered = message.replace(b"%", b"%%").replace(b'"ID"', b"%d").replace(b"TEXT", b"%d")
    length = len(numbered % (FIRST_NUMBER, FIRST_NUMBER))
    return _head(endpoint, "POST", length, _call_headers(endpoint, session)).replace(b"%", b"%%") + numbered


def initialize(endpoint: Endpoint) -> bytes:
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    return _post(endpoint, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, [])


def initialized(endpoint: Endpoint, session: str) -> bytes:
    return _post(endpoint, {"jsonrpc": "2.0", "method": "notifications/initialized"}, _session_headers(session))


def listen(endpoint: Endpoint) -> bytes:
    """Return the request that opens an idle stream in the modern era: `subscriptions/listen`."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": _META}
    headers = [f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: subscriptions/listen"]
    return _post(endpoint, {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}, headers)


def get_stream(endpoint: Endpoint, session: str) -> bytes:
    """Return the request that opens an idle stream in the handshake era: a GET."""
    return _head(endpoint, "GET", 0, _session_headers(session))


def check_response(status: int, body: bytes, number: int) -> str | None:
    """Decode and compare a response. Returns a description if it is wrong, else None."""
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


def _call_headers(endpoint: Endpoint, session: str | None) -> list[str]:
    if endpoint.era == "modern":
        return [f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", f"Mcp-Name: {endpoint.tool}"]
    assert session is not None
    return _session_headers(session)


def _session_headers(session: str) -> list[str]:
    version = f"MCP-Protocol-Version: {HANDSHAKE}"
    return [version, f"Mcp-Session-Id: {session}"] if session else [version]


def _post(endpoint: Endpoint, message: dict[str, Any], headers: list[str]) -> bytes:
    body = _encode(message)
    return _head(endpoint, "POST", len(body), headers) + body


def _head(endpoint: Endpoint, verb: str, length: int, headers: list[str]) -> bytes:
    lines = [
        f"{verb} /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{endpoint.port}",
        "Accept: text/event-stream" if verb == "GET" else "Accept: application/json, text/event-stream",
        *headers,
    ]
    if verb == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {length}"]
    if endpoint.key is not None:
        lines.append(f"Authorization: Bearer {endpoint.key}")
    return "\r\n".join([*lines, "", ""]).encode()


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
