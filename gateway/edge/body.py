"""Reading a request's body, whole and bounded."""

from starlette.types import Message, Receive, Scope

from gateway.edge.bounds import body_too_large
from gateway.errors import Fault, Kind


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The body.

    Raises `Fault`: TOO_LARGE over `limit`, by its announced length before anything is read; UNSUPPORTED, with 415 as
    `http_status`, when it is encoded; CANCELLED when the client leaves.
    """
    named = dict[bytes, bytes](scope["headers"])
    encoding = named.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        # Never decoded: a small body could become a huge one.
        raise Fault(Kind.UNSUPPORTED, "Send the body without Content-Encoding.", details={"http_status": 415})
    length = named.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise body_too_large(limit, int(length))
    message = await receive()
    part = _part(message)
    parts, size = [part], len(part)
    while message.get("more_body", False) and size <= limit:
        message = await receive()
        part = _part(message)
        parts.append(part)
        size += len(part)
    if size > limit:
        raise body_too_large(limit)
    return b"".join(parts)


def _part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise Fault(Kind.CANCELLED, "The client closed the connection.")
    return message.get("body", b"")
