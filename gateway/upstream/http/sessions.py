"""The sessions with one server of the handshake era: which there are, and which go when there are too many."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from typing import Final

from mcp.types.version import LATEST_HANDSHAKE_VERSION

from gateway.contract import Json
from gateway.upstream.http.asked import Who
from gateway.upstream.http.beside import Beside
from gateway.upstream.http.head import fields
from gateway.upstream.talk import Talk, offered
from gateway.upstream.watches import Subscribed

MAX_SESSIONS: Final = 1024


class Session:
    """One session with the server. `asks` says that its client can be asked something, on a stream beside the calls."""

    def __init__(self, hear: "Callable[[Session, Talk, asyncio.Event], Awaitable[None]]", *, asks: bool) -> None:
        self.asks = asks
        self.beside = Beside(partial(hear, self))
        self.subscribed = Subscribed()
        self.id: str | None = None
        self.digest: str | None = None
        """Tells it from others in traces, and is of no use to whoever reads it."""
        self.version = LATEST_HANDSHAKE_VERSION
        self.fields = b""
        """The headers that every request of it carries."""
        self.greeting: Json | None = None
        """The server's answer to `initialize`."""
        self.level: str | None = None
        self.opening = asyncio.Lock()
        self.active = 0
        """Requests under way in it, or that wait for it to be opened."""

    @property
    def logs(self) -> bool:
        return "logging" in offered(self.greeting or {})

    @property
    def in_use(self) -> bool:
        """Whether anybody would miss it."""
        return self.active > 0 or self.beside.has_ears

    def opened(self, id: str | None, version: str) -> None:
        self.id, self.version = id, version
        self.digest = sha256(id.encode()).hexdigest()[:32] if id is not None else None
        lines = [("mcp-protocol-version", version)]
        self.fields = fields(lines if id is None else [*lines, ("mcp-session-id", id)])


class Sessions(OrderedDict[Who, Session]):
    """By whose they are, the last used last. More than `most` only while more are in use."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def drop(self, who: Who, session: Session) -> None:
        """That very session is of no use any more; one that took its place stays."""
        if self.get(who) is session:
            del self[who]
        session.beside.close()

    def make_room(self) -> list[Session]:
        """Those that are too many, taken out, to be ended."""
        ended: list[Session] = []
        while len(self) > self._most and (who := self._least_missed()) is not None:
            ended.append(self.pop(who))
        return ended

    def _least_missed(self) -> Who | None:
        """The one idle for longest, of the tenant that leaves most of them idle: so none can push out another's."""
        idle = [(who, _tenant(who)) for who, session in self.items() if who[0] and not session.in_use]
        counts = Counter(tenant for _, tenant in idle)
        most = max(counts.values(), default=0)
        return next((who for who, tenant in idle if counts[tenant] == most), None)


def _tenant(who: Who) -> str:
    return who[0].partition("/")[0]
