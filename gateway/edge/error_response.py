"""Renders a `Fault` as an HTTP response with the error object as JSON, for everything but MCP responses."""

from collections.abc import Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Send

from gateway.edge.correlation import new_id
from gateway.errors import TABLE, Fault, Kind

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


def handle_unserved(app: FastAPI) -> None:
    """Install handlers for unknown paths, methods that are not allowed, and invalid parameters."""
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)


def not_found() -> Response:
    """Return the 404 response."""
    return _response(404, Fault(Kind.NOT_FOUND, "There is nothing at this path."))


async def _on_http_exception(_: Request, exc: Any) -> Response:
    match exc.status_code:
        case 404:
            return not_found()
        case 405:
            fault = Fault(Kind.INVALID_INPUT, "This method is not allowed here.", code="METHOD_NOT_ALLOWED")
            return _response(405, fault, exc.headers)
        case status:  # a malformed form
            return _response(status, Fault(Kind.INVALID_INPUT, "The request is malformed."), exc.headers)


async def _on_validation_error(_: Request, exc: Any) -> Response:
    # Name the parameter, never the value.
    first = exc.errors()[0]
    location = ".".join(str(part) for part in first["loc"])
    return _response(400, Fault(Kind.INVALID_INPUT, f"{location}: {first['msg']}."))


def _response(status: int, fault: Fault, more: Any = None) -> Response:
    headers, body = render_fault(fault)
    decoded = {name.decode(): value.decode() for name, value in headers}
    return Response(body, status, {**decoded, **(more or {})})
