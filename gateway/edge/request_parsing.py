"""Decoding of request headers, limits on time and size of requests, and the errors they raise.

Used by `gateway.edge.http_protocol` for every request and by routes that read a body.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mcp.shared.inbound import find_duplicated_routing_header
from starlette.types import Message, Receive

from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Times in seconds, sizes in bytes."""

    header_timeout: float = 10.0
    """From the first byte of a request to the end of its head; also for a new connection that sends nothing."""
    body_timeout: float = 30.0
    min_body_rate: float = 500.0
    """Bytes per second, on average since the head, once `body_grace` is over."""
    body_grace: float = 5.0
    idle_timeout: float = 75.0
    """Between two requests on one connection."""
    write_timeout: float = 30.0
    """How long a client may leave its response unread."""
    linger: float = 2.0
    """How long a rejected client may keep sending, so that it can read the response before the connection closes."""
    max_header_bytes: int = 32 * 1024
    max_headers: int = 100
    max_body_bytes: int = 4 * 1024 * 1024
    max_connections: int = 10_000
    max_connections_per_address: int = 1_024
    """0: no limit per address."""


_log = logging.getLogger(__name__)

RawHeaders = list[tuple[bytes, bytes]]


class RequestRejected(Exception):
    """Rejects the request with this HTTP status. Raised in a parser callback, it also stops the parser."""

    def __init__(self, status: int, fault: Fault) -> None:
        super().__init__(fault.message)
        self.status = status
        self.fault = fault


def check_size(url: bytes, headers: RawHeaders, limits: EdgeLimits) -> None:
    """Check the total size and number of headers. Raises `RequestRejected` with 431."""
    size = len(url) + sum(len(name) + len(value) + 4 for name, value in headers)
    if size > limits.max_header_bytes or len(headers) > limits.max_headers:
        raise head_too_large(limits)


def check_host(headers: RawHeaders, version: str) -> None:
    """Require exactly one Host header (HTTP/1.0: at most one). Raises `RequestRejected` with 400."""
    hosts = sum(name.lower() == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version != "1.0"):
        raise RequestRejected(400, Fault(Kind.INVALID_INPUT, "A request needs exactly one Host header."))


def check_length(announced: str, limits: EdgeLimits) -> None:
    """Check Content-Length, which the parser guarantees to be a number. Raises `RequestRejected` with 413."""
    size = int(announced)
    if size > limits.max_body_bytes:
        raise RequestRejected(413, body_too_large(limits.max_body_bytes, size))


def head_too_large(limits: EdgeLimits) -> RequestRejected:
    bounds = {"max_bytes": limits.max_header_bytes, "max_headers": limits.max_headers}
    return RequestRejected(431, Fault(Kind.TOO_LARGE, "The request headers are too large or too many.", details=bounds))


def body_too_large(limit: int, size: int | None = None) -> Fault:
    """`size` is the announced Content-Length, if any."""
    sizes = {"max_bytes": limit} if size is None else {"payload_bytes": size, "max_bytes": limit}
    return Fault(Kind.TOO_LARGE, f"The request body exceeds {limit} bytes.", details=sizes)


def request_timeout(part: str) -> RequestRejected:
    return RequestRejected(408, Fault(Kind.TIMEOUT, f"The {part} of the request did not arrive in time."))


def invalid_request(cause: Exception) -> RequestRejected:
    _log.debug("edge: malformed HTTP request rejected with 400", exc_info=cause)
    return RequestRejected(400, Fault(Kind.INVALID_INPUT, "This is not a valid HTTP request."))


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """Read the complete body. `headers` are folded.

    Raises `Fault`: TOO_LARGE over `limit`, checked by Content-Length before reading; UNSUPPORTED with `http_status` 415
    for an encoded body; CANCELLED if the client disconnects.
    """
    if headers.get("content-encoding", "identity").lower() != "identity":
        # Not decoded: a small compressed body could expand to a huge one.
        raise Fault(Kind.UNSUPPORTED, "Send the body without Content-Encoding.", details={"http_status": 415})
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > limit:
        raise body_too_large(limit, int(length))
    message = await receive()
    part = _body_part(message)
    parts, size = [part], len(part)
    while message.get("more_body", False) and size <= limit:
        message = await receive()
        part = _body_part(message)
        parts.append(part)
        size += len(part)
    if size > limit:
        raise body_too_large(limit)
    return b"".join(parts)


def _body_part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise Fault(Kind.CANCELLED, "The client closed the connection.")
    return message.get("body", b"")


_UPGRADE_HEADERS: Final = frozenset({b"upgrade", b"http2-settings", b"connection"})


def head_without_upgrade(method: bytes, url: bytes, version: str, headers: RawHeaders) -> bytes:
    """Return the head without its upgrade headers, to be parsed again as a plain request (RFC 9110).

    The parser ends a message at an upgrade, even if a body follows.
    """
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    lines += [name + b": " + value for name, value in headers if name.lower() not in _UPGRADE_HEADERS]
    if any(name.lower() == b"connection" and b"close" in value.lower() for name, value in headers):
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"", b""])


def is_websocket_upgrade(headers: RawHeaders) -> bool:
    """Whether the headers ask for an upgrade to WebSocket."""
    named = fold_headers(headers)
    return "upgrade" in named.get("connection", "").lower() and named.get("upgrade", "").lower() == "websocket"


_MAX_CACHED_NAMES: Final = 512


class _NameCache(dict[bytes, str]):
    """Bounded cache of decoded header names."""

    def __missing__(self, key: bytes) -> str:
        name = key.decode("latin-1").lower()
        if len(self) < _MAX_CACHED_NAMES:
            self[key] = name
        return name


_names: Final = _NameCache()


def fold_headers(raw: RawHeaders) -> dict[str, str]:
    """Return headers with lower-case names and stripped values; repeated values are joined by a comma.

    A single-valued header sent twice, such as Authorization, becomes malformed and is rejected later.
    """
    folded = {_names[key]: value.decode("latin-1").strip(" \t") for key, value in raw}
    return folded if len(folded) == len(raw) else _join(raw)


def _join(raw: RawHeaders) -> dict[str, str]:
    values: dict[str, list[str]] = {}
    for key, value in raw:
        values.setdefault(_names[key], []).append(value.decode("latin-1").strip(" \t"))
    return {name: ", ".join(parts) for name, parts in values.items()}


def duplicate_routing_header(raw: RawHeaders, folded: dict[str, str]) -> str | None:
    """Return the name of an MCP routing header that was sent twice: proxies may read another one than we do."""
    if len(folded) == len(raw):
        return None
    return find_duplicated_routing_header([(_names[key], "") for key, _ in raw])
