"""Why a request ends before the app hears of it, and the checks of its head."""

import logging

from gateway.edge.limits import EdgeLimits
from gateway.errors import Fault, Kind

_log = logging.getLogger(__name__)

RawHeaders = list[tuple[bytes, bytes]]


class Refused(Exception):
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
        raise Refused(400, Fault(Kind.INVALID_INPUT, "A request needs exactly one Host header."))


def check_length(announced: str, limits: EdgeLimits) -> None:
    """The parser has seen to it that it is a number. Raises `Refused` with 413."""
    size = int(announced)
    if size > limits.max_body_bytes:
        raise Refused(413, body_too_large(limits.max_body_bytes, size))


def head_too_large(limits: EdgeLimits) -> Refused:
    bounds = {"max_bytes": limits.max_header_bytes, "max_headers": limits.max_headers}
    return Refused(431, Fault(Kind.TOO_LARGE, "The request's headers are too large or too many.", details=bounds))


def body_too_large(limit: int, size: int | None = None) -> Fault:
    """`size` is what the client announced, where it did."""
    sizes = {"max_bytes": limit} if size is None else {"payload_bytes": size, "max_bytes": limit}
    return Fault(Kind.TOO_LARGE, f"The body may have at most {limit} bytes.", details=sizes)


def late(what: str) -> Refused:
    return Refused(408, Fault(Kind.TIMEOUT, f"The {what} of the request did not arrive in time."))


def unreadable(cause: Exception) -> Refused:
    _log.debug("A request could not be read.", exc_info=cause)
    return Refused(400, Fault(Kind.INVALID_INPUT, "This is not a valid HTTP request."))
