"""Sessions of the handshake era with one upstream server, and the standalone stream of each.

Many servers send requests and log messages on the standalone (GET) stream instead of the stream of the call. A session
belongs to one principal, so such a message may go to the newest call of the session. Used by `LegacyHttp`.
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
from gateway.upstream.conversation import MessageHandler, NullMessageHandler, server_capabilities
from gateway.upstream.http.request import SessionKey, encode_headers
from gateway.upstream.resource_subscriptions import SubscribedResources

log = logging.getLogger("gatehouse.upstream")
MAX_SESSIONS: Final = 1024
LINGER_SECONDS: Final = 30.0
OPEN_SECONDS: Final = 2.0
_NULL_HANDLER: Final = NullMessageHandler()
ReadStream = Callable[[MessageHandler, asyncio.Event], Awaitable[None]]
"""Passes the messages of a stream to the handler until the stream ends; sets the event when the stream is open."""


class SessionStream:
    """The standalone stream of a session: open while it has handlers and for `LINGER_SECONDS` after.

    It is not opened again after the server refused it.
    """

    def __init__(self, read_stream: ReadStream) -> None:
        self._read_stream = read_stream
        self._handlers: list[MessageHandler] = []
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._refused = False

    async def open(self) -> None:
        """Open the stream. Returns when it is open, refused, or after `OPEN_SECONDS`."""
        if self._task is None and not self._refused:
            self._opened.clear()
            self._task = asyncio.create_task(self._run())
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_SECONDS):
                await self._opened.wait()

    async def wait_closed(self) -> None:
        """Wait until the stream ends. Never returns if the server refused it: then only calls carry messages."""
        if self._refused:
            await asyncio.Event().wait()
        if self._task is not None:
            await asyncio.wait({self._task})

    @property
    def has_handlers(self) -> bool:
        """Whether any handler is attached."""
        return bool(self._handlers)

    @contextmanager
    def attach(self, handler: MessageHandler) -> Generator[None]:
        """Pass messages of the stream to this handler until the block ends."""
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None
        self._handlers.append(handler)
        try:
            yield
        finally:
            self._handlers.remove(handler)
            if not self._handlers and self._task is not None:
                self._close_timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.close)

    def close(self) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._read_stream(self, self._opened)
        except ForeignError:
            self._refused = True
        except Fault as fault:
            log.debug("upstream session: standalone stream failed: %s", fault.message)
        finally:
            self._task = None
            self._opened.set()

    # ---- gateway.upstream.conversation.MessageHandler ----

    token: int | None = None

    def on_sent(self, id: int, version: str, session: str | None) -> None:
        """Ignored: the stream sends no requests."""

    async def on_notification(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            for handler in list(self._handlers):
                await handler.on_notification(method, params)
        else:
            await self._newest.on_notification(method, params)

    async def on_request(self, method: str, params: Json) -> Json:
        return await self._newest.on_request(method, params)

    async def on_stream_closed(self) -> None:
        """Ignored: no client waits for this stream."""

    @property
    def _newest(self) -> MessageHandler:
        """The handler of the newest call, or else the newest listener."""
        calls = (handler for handler in reversed(self._handlers) if not isinstance(handler, NullMessageHandler))
        return next(calls, self._handlers[-1] if self._handlers else _NULL_HANDLER)


class UpstreamSession:
    """One session with the server. With `accepts_requests`, its client can answer requests on the standalone stream."""

    def __init__(
        self,
        read_stream: "Callable[[UpstreamSession, MessageHandler, asyncio.Event], Awaitable[None]]",
        *,
        accepts_requests: bool,
        owner: str = "",
    ) -> None:
        self.accepts_requests = accepts_requests
        self.owner = owner
        """The principal whose account every request of this session uses."""
        self.stream = SessionStream(partial(read_stream, self))
        self.subscribed = SubscribedResources()
        self.id: str | None = None
        self.digest: str | None = None
        """Identifies the session in traces without disclosing its id."""
        self.version = LATEST_HANDSHAKE_VERSION
        self.headers = b""
        """The header lines of every request in this session."""
        self.initialize_result: Json | None = None
        """The server's `initialize` result; None until the session is open."""
        self.log_level: str | None = None
        self.open_lock = asyncio.Lock()
        self.has_tasks = False
        """Whether tasks may run in it: then it is not ended with this process, so that other replicas can use them."""
        self.active_requests = 0
        """Requests in progress, including those that wait for the session to open."""

    @property
    def has_logging(self) -> bool:
        return "logging" in server_capabilities(self.initialize_result or {})

    @property
    def is_in_use(self) -> bool:
        """Whether it has requests in progress or handlers of its stream."""
        return self.active_requests > 0 or self.stream.has_handlers

    def establish(self, id: str | None, version: str) -> None:
        self.id, self.version = id, version
        self.digest = sha256(id.encode()).hexdigest()[:32] if id is not None else None
        headers = [("mcp-protocol-version", version)]
        self.headers = encode_headers(headers if id is None else [*headers, ("mcp-session-id", id)])


class UpstreamSessions(OrderedDict[SessionKey, UpstreamSession]):
    """The sessions by key, most recently used last. Exceeds `limit` only while more sessions are in use."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def drop(self, key: SessionKey, session: UpstreamSession) -> None:
        """Remove this session, but not one that has already replaced it."""
        if self.get(key) is session:
            del self[key]
        session.stream.close()

    def evict(self) -> list[UpstreamSession]:
        """Remove idle sessions above the limit and return them, so that the caller ends them."""
        evicted: list[UpstreamSession] = []
        while len(self) > self._limit and (key := self._eviction_candidate()) is not None:
            evicted.append(self.pop(key))
        return evicted

    def _eviction_candidate(self) -> SessionKey | None:
        """The least recently used idle session of the tenant with the most idle ones: no tenant evicts another's."""
        idle = [(key, _tenant(key)) for key, session in self.items() if key[0] and not session.is_in_use]
        counts = Counter(tenant for _, tenant in idle)
        largest = max(counts.values(), default=0)
        return next((key for key, tenant in idle if counts[tenant] == largest), None)


def _tenant(key: SessionKey) -> str:
    return key[0].partition("/")[0]
