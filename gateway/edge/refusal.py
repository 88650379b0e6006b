"""An answer given in place of the app: a small JSON body with the error object."""

from http import HTTPStatus

import msgspec
from starlette.types import Send

from gateway.edge.correlation import new_id
from gateway.errors import Fault

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
