"""What one client may take of the server's time and memory.

Why a request ends before the app hears of it, and the checks of its head.

Reading a request's body, whole and bounded.

Declining an upgrade: the request goes on as plain HTTP/1.1, as RFC 9110 has it.
"""

import logging
from dataclasses import dataclass
from typing import Final

from starlette.types import Message, Receive, Scope

from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Times in seconds, sizes in bytes."""

    header_timeout: float = 10.0
    """From the first byte of a request to the end of its head; also for a new connection that says nothing."""
    body_timeout: float = 30.0
    min_body_rate: float = 500.0
    """Bytes per second, on average since the head, once `body_grace` is over."""
    body_grace: float = 5.0
    idle_timeout: float = 75.0
    """Between two requests of one connection."""
    write_timeout: float = 30.0
    """How long a client may leave its answer unread."""
    linger: float = 2.0
    """How long a refused client may go on sending, so that it finds the answer before its connection breaks."""
    max_header_bytes: int = 32 * 1024
    max_headers: int = 100
    max_body_bytes: int = 4 * 1024 * 1024
    max_connections: int = 10_000
    max_connections_per_address: int = 1_024
    """0: as many as there may be in all."""


_log = logging.getLogger(__name__)

RawHeaders = list[tuple[bytes, bytes]]


class RequestRejected(Exception):
    """The request ends here, with this status; raised inside a parser callback it stops the parser too."""

    def __init__(self, status: int, fault: Fault) -> None:
        super().__init__(fault.message)
        self.status = status
        self.fault = fault


def check_size(url: bytes, headers: RawHeaders, limits: EdgeLimits) -> None:
    """Add the head up. Raises `Refused` with 431."""
    size = len(url) + sum(len(name) + len(value) + 4 for name, value in headers)
    if size > limits.max_header_bytes or len(headers) > limits.max_headers:
        raise head_too_large(limits)


def check_host(headers: RawHeaders, version: str) -> None:
    """One Host, and in HTTP/1.0 at most one. Raises `Refused` with 400."""
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version != "1.0"):
        raise RequestRejected(400, Fault(Kind.INVALID_INPUT, "A request needs exactly one Host header."))


def check_length(announced: str, limits: EdgeLimits) -> None:
    """The parser has seen to it that it is a number. Raises `Refused` with 413."""
    size = int(announced)
    if size > limits.max_body_bytes:
        raise RequestRejected(413, body_too_large(limits.max_body_bytes, size))


def head_too_large(limits: EdgeLimits) -> RequestRejected:
    bounds = {"max_bytes": limits.max_header_bytes, "max_headers": limits.max_headers}
    return RequestRejected(
        431, Fault(Kind.TOO_LARGE, "The request's headers are too large or too many.", details=bounds)
    )


def body_too_large(limit: int, size: int | None = None) -> Fault:
    """`size` is what the client announced, where it did."""
    sizes = {"max_bytes": limit} if size is None else {"payload_bytes": size, "max_bytes": limit}
    return Fault(Kind.TOO_LARGE, f"The body may have at most {limit} bytes.", details=sizes)


def late(what: str) -> RequestRejected:
    return RequestRejected(408, Fault(Kind.TIMEOUT, f"The {what} of the request did not arrive in time."))


def unreadable(cause: Exception) -> RequestRejected:
    _log.debug("A request could not be read.", exc_info=cause)
    return RequestRejected(400, Fault(Kind.INVALID_INPUT, "This is not a valid HTTP request."))


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


_OF_THE_UPGRADE: Final = frozenset({b"upgrade", b"http2-settings", b"connection"})


def plain_head(method: bytes, url: bytes, version: str, headers: RawHeaders) -> bytes:
    """The same head without its upgrade. The parser ends a message at an upgrade, whatever body it announced."""
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    lines += [name + b": " + value for name, value in headers if name not in _OF_THE_UPGRADE]
    if any(name == b"connection" and b"close" in value.lower() for name, value in headers):
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"", b""])
