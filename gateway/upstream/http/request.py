"""Request heads as bytes, with the fixed part encoded once; and the request type of the handshake-era transports."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from msgspec import Struct

from gateway.contract import Json
from gateway.outbound import OutboundTarget
from gateway.upstream.conversation import MessageHandler

_VALID_LINE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*").fullmatch
_RESERVED_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept", "accept-encoding"}
)


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Encode headers as lines. The values must be valid header values."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode("latin-1")


class RequestHead:
    """Builds requests for one URL and one set of fixed headers. Raises `ValueError` for an invalid header."""

    def __init__(
        self,
        target: OutboundTarget,
        fixed: Mapping[str, str],
        accept: str | None = "application/json, text/event-stream",
    ) -> None:
        default_port = 443 if target.scheme == "https" else 80
        host = f"[{target.host}]" if ":" in target.host else target.host
        authority = host if target.port == default_port else f"{host}:{target.port}"
        lines = [
            f"host: {authority}",
            "user-agent: gatehouse",
            "accept-encoding: identity",
        ]
        if accept is not None:  # else each request names its own
            lines.append(f"accept: {accept}")
        lines += [f"{name}: {value}" for name, value in fixed.items() if name.lower() not in _RESERVED_HEADERS]
        if invalid := [line.partition(":")[0] for line in lines if not _VALID_LINE(line)]:
            raise ValueError(f"the header {invalid[0]!r} is invalid")
        self._target = target
        self.path = target.path
        self._fixed = fixed
        self._accept = accept
        fixed_lines = "\r\n".join(lines)
        self._lines = f" HTTP/1.1\r\n{fixed_lines}\r\n".encode("latin-1")
        self._without_body = target.path.encode("latin-1") + self._lines
        self._post = f"POST {target.path} HTTP/1.1\r\n{fixed_lines}\r\ncontent-type: application/json\r\n".encode(
            "latin-1"
        )

    def with_path(self, path: str) -> "RequestHead":
        """The same head for another path of the server."""
        return RequestHead(replace(self._target, path=path), self._fixed, self._accept)

    def post(self, headers: bytes, body: bytes) -> bytes:
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (self._post, headers, len(body), body)

    def without_body(self, verb: str, headers: bytes) -> bytes:
        """Encode a request without a body."""
        return b"%b %b%b\r\n" % (verb.encode(), self._without_body, headers)

    def request(self, verb: str, path: str, headers: bytes, body: bytes | None) -> bytes:
        """Encode a request for any path of the server. `headers` name the type of the body."""
        start = b"%b %b%b%b" % (verb.encode(), path.encode("ascii"), self._lines, headers)
        return start + b"\r\n" if body is None else b"%bcontent-length: %d\r\n\r\n%b" % (start, len(body), body)


SessionKey = tuple[str, frozenset[str]]
"""Principal and capability names of the client: only clients with equal keys share a session."""


class LegacyRequest(Struct, frozen=True, gc=False):
    """One handshake-era request: its session, method, params and message handler."""

    session_key: SessionKey
    capabilities: Json
    """Client capabilities to open the session with."""
    method: str
    params: Json
    handler: MessageHandler
    headers: bytes = b""
    """Additional header lines, if the transport sends headers with each request."""
    log_level: str | None = None
    """The lowest log level that the client wants."""
    session: str | None = None
    """The session that the request must use, as `LegacyHttp.session_of` returned it; None: that of the key."""
