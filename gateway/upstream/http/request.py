"""The head of a request as bytes; what never changes is joined once.

A request in the handshake era, whichever of its transports carries it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from msgspec import Struct

from gateway.contract import Json
from gateway.outbound import OutboundTarget
from gateway.upstream.conversation import MessageHandler

_FIELD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*").fullmatch

_OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept", "accept-encoding"})


def fields(headers: Iterable[tuple[str, str]]) -> bytes:
    """Headers as lines. Their values must be fit to be sent."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode("latin-1")


class RequestHead:
    """For one URL and one set of fixed headers. Raises `ValueError` for a header that cannot be sent."""

    def __init__(self, target: OutboundTarget, fixed: Mapping[str, str]) -> None:
        default = 443 if target.scheme == "https" else 80
        host = f"[{target.host}]" if ":" in target.host else target.host
        authority = host if target.port == default else f"{host}:{target.port}"
        lines = [
            f"host: {authority}",
            "user-agent: gatehouse",
            "accept: application/json, text/event-stream",
            "accept-encoding: identity",
        ]
        lines += [f"{name}: {value}" for name, value in fixed.items() if name.lower() not in _OURS]
        if bad := [line.partition(":")[0] for line in lines if not _FIELD(line)]:
            raise ValueError(f"the header {bad[0]!r} cannot be sent")
        self._target = target
        self._given = fixed
        fixed_lines = "\r\n".join(lines)
        self._bare = f"{target.path} HTTP/1.1\r\n{fixed_lines}\r\n".encode("latin-1")
        self._post = f"POST {target.path} HTTP/1.1\r\n{fixed_lines}\r\ncontent-type: application/json\r\n".encode(
            "latin-1"
        )

    def at(self, path: str) -> "RequestHead":
        """The same for another path of the same server."""
        return RequestHead(replace(self._target, path=path), self._given)

    def post(self, fields: bytes, body: bytes) -> bytes:
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (self._post, fields, len(body), body)

    def bare(self, verb: str, fields: bytes) -> bytes:
        """A request without a body."""
        return b"%b %b%b\r\n" % (verb.encode(), self._bare, fields)


Who = tuple[str, frozenset[str]]

"""A principal and the names of what its client can do: no session is ever shared beyond that."""


class LegacyRequest(Struct, frozen=True, gc=False):
    """One request: in whose session, what, and who is told what the server says meanwhile."""

    who: Who
    capabilities: Json
    """What a session of theirs is opened with."""
    method: str
    params: Json
    talk: MessageHandler
    lines: bytes = b""
    """Headers beside the session's own, where the transport has them with each request."""
    level: str | None = None
    """The lowest level of log message that its client wants."""
