"""Renders a `Fault` as an HTTP response with the error object as JSON, for everything but MCP responses."""

from collections.abc import Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

import msgspec
from starlette.types import Send

from gateway.edge.correlation import new_id
from gateway.errors import TABLE, Fault

Headers = list[tuple[bytes, bytes]]
_encode = msgspec.json.Encoder().encode


def render_fault(fault: Fault, *, as_rpc: bool = False) -> tuple[Headers, bytes]:
    """Return headers and body for the fault, with a new correlation id.

    With `as_rpc` the body is a JSON-RPC error without an id, for clients that expect one.
    """
    correlation_id = new_id()
    error = fault.as_object(correlation_id=correlation_id, origin="gateway", stage="edge", codes={})
    body = _encode(_rpc_error(fault, error) if as_rpc else {"error": error})
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"x-correlation-id", correlation_id.encode()),
    ]
    if fault.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, ceil(fault.retry_after))))
    return headers, body


def _rpc_error(fault: Fault, error: dict[str, Any]) -> dict[str, Any]:
    code = TABLE[fault.kind].handshake
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": fault.message, "data": error}}


def closing_response(status: int, fault: Fault, *, as_rpc: bool = False) -> bytes:
    """Return the complete response as bytes, for a connection that is closed after it."""
    headers, body = render_fault(fault, as_rpc=as_rpc)
    lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"content-length: %d" % len(body), b"connection: close", b"", body])


async def send_fault(send: Send, status: int, fault: Fault, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Send the fault through ASGI, with `more` headers."""
    headers, body = render_fault(fault)
    headers += [(b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
