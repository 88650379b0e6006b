"""An answer given in place of the app: a small JSON body with the error object.

What no plain route answers, in the same form as every other failure.
"""

from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Send

from gateway.edge.correlation import new_id
from gateway.errors import Fault, Kind

Headers = list[tuple[bytes, bytes]]

_encode = msgspec.json.Encoder().encode


def refusal(fault: Fault) -> tuple[Headers, bytes]:
    """Headers and body for the fault, under a correlation id of its own."""
    correlation_id = new_id()
    shown = fault.as_object(correlation_id=correlation_id, origin="gateway", stage="edge", words={})
    body = _encode({"error": shown})
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"x-correlation-id", correlation_id.encode()),
    ]
    if fault.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(fault.retry_after))))
    return headers, body


def last_words(status: int, fault: Fault) -> bytes:
    """The whole answer as it goes over a connection that is closed after it."""
    headers, body = refusal(fault)
    lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"content-length: %d" % len(body), b"connection: close", b"", body])


async def answer(send: Send, status: int, fault: Fault) -> None:
    """The same through ASGI."""
    headers, body = refusal(fault)
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def answer_unserved(app: FastAPI) -> None:
    """Paths that are not served, methods that a path does not take, and values that a route cannot read."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _unreadable)


def not_served() -> Response:
    """There is nothing at this path."""
    return _response(404, Fault(Kind.NOT_FOUND, "There is nothing at this path."))


async def _refused(_: Request, exc: Any) -> Response:
    match exc.status_code:
        case 404:
            return not_served()
        case 405:
            told = Fault(Kind.INVALID_INPUT, "This method is not allowed here.", code="METHOD_NOT_ALLOWED")
            return _response(405, told, exc.headers)
        case status:  # a form that cannot be read
            return _response(status, Fault(Kind.INVALID_INPUT, "This request cannot be read."), exc.headers)


async def _unreadable(_: Request, exc: Any) -> Response:
    # Where it stands, never what was sent.
    first = exc.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return _response(400, Fault(Kind.INVALID_INPUT, f"{place}: {first['msg']}."))


def _response(status: int, fault: Fault, more: Any = None) -> Response:
    headers, body = refusal(fault)
    shown = {name.decode(): value.decode() for name, value in headers}
    return Response(body, status, {**shown, **(more or {})})
