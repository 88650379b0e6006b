"""The stream beside the calls of one session: many servers ask and log there instead of on the call's own stream.

A session belongs to one principal, so whatever is said there while its calls run may be told to the newest of them.

The sessions with one server of the handshake era: which there are, and which go when there are too many.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from typing import Final

from mcp.types.version import LATEST_HANDSHAKE_VERSION

from gateway.contract import Json
from gateway.errors import Fault, ForeignError
from gateway.upstream.conversation import MessageHandler, NullMessageHandler, offered
from gateway.upstream.http.request import Who, fields
from gateway.upstream.resource_subscriptions import SubscribedResources

log = logging.getLogger("gatehouse.upstream")

LINGER_SECONDS: Final = 30.0

OPEN_SECONDS: Final = 2.0

_NOBODY: Final = NullMessageHandler()

Hear = Callable[[MessageHandler, asyncio.Event], Awaitable[None]]

"""Hears what the server says, until it ends the stream; sets the event as soon as the stream is open."""


class SessionStream:
    """Open while calls run or somebody hears, and for a while after; not opened again once the server refused it."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._talks: list[MessageHandler] = []
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._refused = False

    async def open(self) -> None:
        """Returns when the server may speak on it, or has shown that it does not."""
        if self._task is None and not self._refused:
            self._opened.clear()
            self._task = asyncio.create_task(self._run())
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_SECONDS):
                await self._opened.wait()

    async def over(self) -> None:
        """Until the stream ends; without end if the server has none: what it has to tell comes with calls, or never."""
        if self._refused:
            await asyncio.Event().wait()
        if self._task is not None:
            await asyncio.wait({self._task})

    @property
    def has_ears(self) -> bool:
        """Whether anybody is there to be told."""
        return bool(self._talks)

    @contextmanager
    def told(self, talk: MessageHandler) -> Generator[None]:
        """From now until the block ends, this call may be asked and told."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._talks.append(talk)
        try:
            yield
        finally:
            self._talks.remove(talk)
            if not self._talks and self._task is not None:
                self._closing = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.close)

    def close(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._hear(self, self._opened)
        except ForeignError:
            self._refused = True
        except Fault as fault:
            log.debug("the stream beside calls broke off: %s", fault.message)
        finally:
            self._task = None
            self._opened.set()

    # ---- gateway.upstream.conversation.Talk, for whichever call is there ----

    token: int | None = None

    def sent(self, id: int, version: str, session: str | None) -> None:
        """It hears, and sends nothing."""

    async def notified(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            for talk in list(self._talks):
                await talk.notified(method, params)
        else:
            await self._newest.notified(method, params)

    async def asked(self, method: str, params: Json) -> Json:
        return await self._newest.asked(method, params)

    async def hung_up(self) -> None:
        """Nobody waits for this stream."""

    @property
    def _newest(self) -> MessageHandler:
        """Of the calls; where there is none, of those who only hear."""
        calls = (talk for talk in reversed(self._talks) if not isinstance(talk, NullMessageHandler))
        return next(calls, self._talks[-1] if self._talks else _NOBODY)


MAX_SESSIONS: Final = 1024


class UpstreamSession:
    """One session with the server. `asks` says that its client can be asked something, on a stream beside the calls."""

    def __init__(
        self, hear: "Callable[[UpstreamSession, MessageHandler, asyncio.Event], Awaitable[None]]", *, asks: bool
    ) -> None:
        self.asks = asks
        self.beside = SessionStream(partial(hear, self))
        self.subscribed = SubscribedResources()
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


class UpstreamSessions(OrderedDict[Who, UpstreamSession]):
    """By whose they are, the last used last. More than `most` only while more are in use."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def drop(self, who: Who, session: UpstreamSession) -> None:
        """That very session is of no use any more; one that took its place stays."""
        if self.get(who) is session:
            del self[who]
        session.beside.close()

    def make_room(self) -> list[UpstreamSession]:
        """Those that are too many, taken out, to be ended."""
        ended: list[UpstreamSession] = []
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
