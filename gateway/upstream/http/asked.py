"""A request in the handshake era, whichever of its transports carries it."""

from msgspec import Struct

from gateway.contract import Json
from gateway.upstream.talk import Talk

Who = tuple[str, frozenset[str]]
"""A principal and the names of what its client can do: no session is ever shared beyond that."""


class Asked(Struct, frozen=True, gc=False):
    """One request: in whose session, what, and who is told what the server says meanwhile."""

    who: Who
    capabilities: Json
    """What a session of theirs is opened with."""
    method: str
    params: Json
    talk: Talk
    lines: bytes = b""
    """Headers beside the session's own, where the transport has them with each request."""
    level: str | None = None
    """The lowest level of log message that its client wants."""
