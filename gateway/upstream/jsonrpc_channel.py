"""Bidirectional JSON-RPC over one duplex stream: the pipes of a process, or an event stream of the SSE transport.

Multiplexes concurrent requests by their ids. Used by `ChannelPool`.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, cast, get_args

from mcp.types import LoggingLevel
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from gateway.contract import MODERN, Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.breaker import ConnectionFailed
from gateway.upstream.conversation import (
    MessageHandler,
    NullMessageHandler,
    forwarded_capabilities,
    server_capabilities,
)
from gateway.upstream.lists import ChangeListener
from gateway.upstream.remote import Era, gateway_meta, speaks_modern
from gateway.upstream.resource_subscriptions import SubscribedResources

PROBE_SECONDS: Final = 1.0
"""A handshake-era server may ignore `server/discover`: after this time `initialize` is sent as well."""
OPEN_SECONDS: Final = 30.0
MAX_BUFFERED_NOTIFICATIONS: Final = 256
"""Notifications buffered for a slow client; more are dropped, as the protocol allows."""
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_NULL_HANDLER: Final = NullMessageHandler()
_LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)


class DuplexStream(Protocol):
    """A bidirectional message stream to one server."""

    async def write(self, message: Json) -> None:
        """Send a message. Raises `Fault(UNAVAILABLE)` when the stream is closed."""
        ...

    async def stop(self) -> None: ...


Connect = Callable[[Callable[[Json], None], Callable[[], None]], Awaitable[DuplexStream]]
"""(on_message, called for every message; on_close, called once) -> the stream. Raises `Fault(UNAVAILABLE)`."""


class JsonRpcChannel:
    """One channel to a server, in the era that was negotiated at its start.

    With `single_caller` all calls belong to one principal, so a message that names no call may go to any of them.
    """

    def __init__(self, name: str, connect: Connect, info: Json, *, single_caller: bool) -> None:
        self._name = name
        self._connect = connect
        self._info = info
        self._single_caller = single_caller
        self._duplex: DuplexStream | None = None
        self._ids = itertools.count(1)
        self._pending: dict[int, _PendingRequest] = {}
        self._handlers: list[MessageHandler] = [_NULL_HANDLER]
        self._subscribed = SubscribedResources()
        self._background: set[asyncio.Task[None]] = set()
        self.era: Era = "modern"
        self.version = MODERN
        self.discovery: Json = {}
        self.is_closed = False
        self.has_answered = False
        """Whether it has answered a request after the negotiation."""
        self.closed = asyncio.Event()
        self.log_level: str | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it has subscriptions or requests in progress, other than idle ones."""
        return bool(self._subscribed) or any(not pending.idle for pending in self._pending.values())

    async def start(self, capabilities: Json, known_era: Era | None) -> None:
        """Connect, and negotiate the era unless it is known."""
        self._duplex = await self._connect(self._on_message, self._on_close)
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self._negotiate(capabilities, known_era)
        except TimeoutError as exc:
            await self.stop()
            raise Fault(Kind.UNAVAILABLE, f"{self._name} does not answer.") from exc
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self._on_close()
        duplex, self._duplex = self._duplex, None
        if duplex is not None:
            await duplex.stop()
        for task in self._background:
            task.cancel()

    def set_handler(self, handler: MessageHandler) -> None:
        """Set the handler of messages that belong to no call; subscriptions take precedence."""
        self._handlers[0] = handler

    async def subscribe(self, uris: frozenset[str], listener: ChangeListener) -> None:
        """Subscribe with the handshake-era methods and pass updates to `listener` until the channel closes."""
        self._handlers.append(listener)
        try:
            for uri in self._subscribed.add(uris):
                await self.request("resources/subscribe", {"uri": uri}, _NULL_HANDLER)
            listener.on_ready()
            await self.closed.wait()
        finally:
            self._handlers.remove(listener)
            for uri in self._subscribed.remove(uris) if not self.is_closed else ():
                self._spawn(self._unsubscribe(uri))

    async def request(self, method: str, params: Json, handler: MessageHandler, *, idle: bool = False) -> Json:
        """Send a request and return its result. `handler` gets the messages that belong to it, in order.

        An `idle` request does not make the channel busy.
        """
        id = next(self._ids)
        handler.on_sent(id, self.version, None)
        pending = await self._send(id, method, params, handler, idle)
        try:
            result = await pending.wait()
        except asyncio.CancelledError:
            if not self.is_closed:
                self._spawn(self._notify("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            self._pending.pop(id, None)
        self.has_answered = True
        return result

    async def set_log_level(self, level: str | None) -> None:
        """Lower the log level of a handshake-era server to `level`; never raises it."""
        if level not in _LEVELS or self.era == "modern" or "logging" not in server_capabilities(self.discovery):
            return
        if self.log_level is None or _LEVELS.index(level) < _LEVELS.index(self.log_level):
            self.log_level = level
            with suppress(ForeignError):
                await self.request("logging/setLevel", {"level": level}, _NULL_HANDLER)

    # ---- negotiation ----

    async def _negotiate(self, capabilities: Json, known_era: Era | None) -> None:
        """Send `server/discover`, and after `PROBE_SECONDS` without an answer `initialize` as well.

        The first success decides: a silent server may only be slow to start.
        """
        discover_task: asyncio.Task[Json] | None = None
        try:
            if known_era != "handshake":
                meta: Json = {"_meta": gateway_meta(self._info)}
                discover_task = asyncio.create_task(self.request("server/discover", meta, _NULL_HANDLER))
                await asyncio.wait({discover_task}, timeout=None if known_era == "modern" else PROBE_SECONDS)
                if self._adopt_modern(discover_task):
                    return
            await self._initialize(capabilities, discover_task)
        finally:
            self.has_answered = False
            if discover_task is not None and not discover_task.done():
                discover_task.cancel()

    async def _initialize(self, capabilities: Json, discover_task: "asyncio.Task[Json] | None") -> None:
        params: Json = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": forwarded_capabilities(capabilities),
            "clientInfo": self._info,
        }
        initialize_task = asyncio.create_task(self.request("initialize", params, _NULL_HANDLER))
        try:
            pending = (
                {initialize_task} if discover_task is None or discover_task.done() else {initialize_task, discover_task}
            )
            while pending and not _succeeded(initialize_task):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if discover_task is not None and self._adopt_modern(discover_task):
                    return
        finally:
            if not initialize_task.done():
                initialize_task.cancel()
            initialize_task.add_done_callback(_succeeded)  # marks its exception as retrieved
        result = initialize_task.result()
        if result.get("protocolVersion") not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} has no protocol version in common with the gateway.")
        self.era, self.version, self.discovery = "handshake", str(result["protocolVersion"]), result
        await self._notify("notifications/initialized", {})

    def _adopt_modern(self, discover_task: "asyncio.Task[Json]") -> bool:
        if not _succeeded(discover_task) or not speaks_modern(discover_task.result()):
            return False
        self.era, self.discovery = "modern", discover_task.result()
        return True

    async def _send(self, id: int, method: str, params: Json, handler: MessageHandler, idle: bool) -> "_PendingRequest":
        duplex = self._duplex
        if duplex is None or self.is_closed:
            raise self._closed_fault()
        pending = self._pending[id] = _PendingRequest(handler, idle=idle)
        try:
            await duplex.write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        except BaseException:
            self._pending.pop(id, None)
            raise
        return pending

    # ---- incoming messages ----

    def _on_message(self, message: Json) -> None:
        method, id = message.get("method"), message.get("id")
        if isinstance(method, str):
            params: Any = message.get("params")
            known = cast("Json", params) if isinstance(params, dict) else {}
            if id is None:
                self._on_notification(method, known)
            else:
                self._spawn(self._answer_request(id, method, known))
            return
        pending = self._pending.get(id) if isinstance(id, int) else None
        if pending is not None:
            pending.resolve(_outcome(message, self._name))

    def _on_notification(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            token = params.get("progressToken")
            for pending in self._pending.values():
                if pending.handler.token == token and token is not None:
                    pending.notify(method, params)
                    break
            return
        if method == "notifications/message":
            call = self._sole_call()
            if call is not None:
                call.notify(method, params)
            return
        meta: Any = params.get("_meta")
        stream = cast("Json", meta).get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        recipient = self._pending.get(stream) if isinstance(stream, int) else None
        listener = self._handlers[-1]
        if recipient is None and listener is _NULL_HANDLER:
            # The channel has no handler of its own; a call in progress passes the change on to the same backend.
            recipient = next(reversed(self._pending.values()), None)
        if recipient is not None:
            recipient.notify(method, params)
        else:
            self._spawn(listener.on_notification(method, params))

    def _sole_call(self) -> "_PendingRequest | None":
        """The only call that a message without a request id can belong to; None if ambiguous."""
        calls = [pending for pending in self._pending.values() if not isinstance(pending.handler, NullMessageHandler)]
        if len(calls) == 1 or (calls and self._single_caller):
            return calls[-1]
        return None

    async def _answer_request(self, id: Any, method: str, params: Json) -> None:
        call = self._sole_call()
        handler = call.handler if call is not None else _NULL_HANDLER
        response: Json = {"jsonrpc": "2.0", "id": id}
        try:
            response["result"] = await handler.on_request(method, params)
        except ForeignError as exc:
            response["error"] = {"code": exc.code, "message": exc.message}
        if self._duplex is not None:
            await self._duplex.write(response)

    async def _notify(self, method: str, params: Json) -> None:
        if self._duplex is not None:
            await self._duplex.write({"jsonrpc": "2.0", "method": method, "params": params})

    async def _unsubscribe(self, uri: str) -> None:
        with suppress(ForeignError):
            await self.request("resources/unsubscribe", {"uri": uri}, _NULL_HANDLER)

    def _on_close(self) -> None:
        self.is_closed = True
        self.closed.set()
        for pending in self._pending.values():
            pending.resolve(self._closed_fault())

    def _closed_fault(self) -> Fault:
        return ConnectionFailed(f"{self._name} has stopped.")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            with suppress(Fault):
                await work

        task = asyncio.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class _PendingRequest:
    """A request in progress: its undelivered notifications and finally its outcome."""

    __slots__ = ("_notifications", "_outcome", "_wake", "handler", "idle")

    def __init__(self, handler: MessageHandler, *, idle: bool) -> None:
        self.handler = handler
        self.idle = idle
        self._notifications: deque[tuple[str, Json]] = deque()
        self._outcome: Json | Fault | ForeignError | None = None
        self._wake: asyncio.Future[None] | None = None

    async def wait(self) -> Json:
        """Deliver notifications until the outcome is known. Returns the result or raises the error."""
        while True:
            while self._notifications:
                await self.handler.on_notification(*self._notifications.popleft())
            if self._outcome is not None:
                if isinstance(self._outcome, dict):
                    return self._outcome
                raise self._outcome
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def notify(self, method: str, params: Json) -> None:
        if len(self._notifications) < MAX_BUFFERED_NOTIFICATIONS:
            self._notifications.append((method, params))
            self._signal()

    def resolve(self, outcome: "Json | Fault | ForeignError") -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._signal()

    def _signal(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _succeeded(task: "asyncio.Task[Json]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _outcome(message: Json, name: str) -> "Json | Fault | ForeignError":
    error: Any = message.get("error")
    result: Any = message.get("result")
    if isinstance(error, dict):
        known = cast("Json", error)
        code: Any = known.get("code")
        text = str(known.get("message", ""))
        return ForeignError(code if isinstance(code, int) else -32603, text, known.get("data"))
    if isinstance(result, dict):
        return cast("Json", result)
    return Fault(Kind.UNAVAILABLE, f"{name} sent a response without a result.")
