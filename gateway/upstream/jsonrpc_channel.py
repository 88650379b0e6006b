"""JSON-RPC both ways over one channel, a process's pipes or an event stream: many requests at a time, by their ids."""

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
from gateway.upstream.conversation import MessageHandler, NullMessageHandler, carried, offered
from gateway.upstream.lists import ChangeListener
from gateway.upstream.remote import Era, envelope, speaks_modern
from gateway.upstream.resource_subscriptions import SubscribedResources

PROBE_SECONDS: Final = 1.0
"""An older server may stay silent at a method it does not know: then it is greeted the old way as well."""
HELLO_SECONDS: Final = 30.0
MAX_UNTOLD: Final = 256
"""Notifications that may wait for a slow client; what comes on top is lost, as the protocol allows."""
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_NOBODY: Final = NullMessageHandler()
_LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)


class DuplexStream(Protocol):
    """A channel to one server."""

    async def write(self, message: Json) -> None:
        """Raises `Fault(UNAVAILABLE)` when it is closed."""
        ...

    async def stop(self) -> None: ...


Connect = Callable[[Callable[[Json], None], Callable[[], None]], Awaitable[DuplexStream]]
"""(who gets every message, who is told once that it ended) -> the channel. Raises `Fault(UNAVAILABLE)`."""


class JsonRpcChannel:
    """One channel, opened in the era it speaks. `alone` says that all its callers are one: what it says without
    naming a call may be told to whichever of them is there."""

    def __init__(self, name: str, connect: Connect, info: Json, *, alone: bool) -> None:
        self._name = name
        self._connect = connect
        self._info = info
        self._alone = alone
        self._duplex: DuplexStream | None = None
        self._ids = itertools.count(1)
        self._open: dict[int, _Waiting] = {}
        self._hearings: list[MessageHandler] = [_NOBODY]
        self._subscribed = SubscribedResources()
        self._aside: set[asyncio.Task[None]] = set()
        self.era: Era = "modern"
        self.version = MODERN
        self.greeting: Json = {}
        self.dead = False
        self.useful = False
        """Whether it has answered a request beyond its opening."""
        self.gone = asyncio.Event()
        self.level: str | None = None

    @property
    def busy(self) -> bool:
        """Whether anybody would miss it."""
        return bool(self._subscribed) or any(not waiting.idle for waiting in self._open.values())

    async def start(self, capabilities: Json, known: Era | None) -> None:
        """Connect and find out what it speaks, unless that is known."""
        self._duplex = await self._connect(self._heard, self._ended)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                await self._open_up(capabilities, known)
        except TimeoutError as exc:
            await self.stop()
            raise Fault(Kind.UNAVAILABLE, f"{self._name} does not answer.") from exc
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self._ended()
        duplex, self._duplex = self._duplex, None
        if duplex is not None:
            await duplex.stop()
        for task in self._aside:
            task.cancel()

    def hear(self, hearing: MessageHandler) -> None:
        """Who is told of what concerns no call, unless another `watch`es."""
        self._hearings[0] = hearing

    async def watch(self, uris: frozenset[str], hearing: ChangeListener) -> None:
        """Subscribe, as the handshake era does, and hear of updates until it ends."""
        self._hearings.append(hearing)
        try:
            for uri in self._subscribed.more(uris):
                await self.request("resources/subscribe", {"uri": uri}, _NOBODY)
            hearing.ready()
            await self.gone.wait()
        finally:
            self._hearings.remove(hearing)
            for uri in self._subscribed.less(uris) if not self.dead else ():
                self._spawn(self._unsubscribe(uri))

    async def request(self, method: str, params: Json, talk: MessageHandler, *, idle: bool = False) -> Json:
        """The result; meanwhile `talk` is told what the server says to this request, in its order.

        One that is `idle` keeps nobody from ending the channel.
        """
        id = next(self._ids)
        talk.sent(id, self.version, None)
        waiting = await self._send(id, method, params, talk, idle)
        try:
            result = await waiting.answer()
        except asyncio.CancelledError:
            if not self.dead:
                self._spawn(self._tell("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            self._open.pop(id, None)
        self.useful = True
        return result

    async def speak_up(self, level: str | None) -> None:
        """Have a server of the handshake era log at that level, unless it does so at a lower one already."""
        if level not in _LEVELS or self.era == "modern" or "logging" not in offered(self.greeting):
            return
        if self.level is None or _LEVELS.index(level) < _LEVELS.index(self.level):
            self.level = level
            with suppress(ForeignError):
                await self.request("logging/setLevel", {"level": level}, _NOBODY)

    # ---- the opening ----

    async def _open_up(self, capabilities: Json, known: Era | None) -> None:
        """Ask in the newest revision; a server that is slow, or silent at what it does not know, is greeted as well.

        Whichever it answers first decides: it may only have been busy starting.
        """
        discovered: asyncio.Task[Json] | None = None
        try:
            if known != "handshake":
                meta: Json = {"_meta": envelope(self._info)}
                discovered = asyncio.create_task(self.request("server/discover", meta, _NOBODY))
                await asyncio.wait({discovered}, timeout=None if known == "modern" else PROBE_SECONDS)
                if self._found_modern(discovered):
                    return
            await self._greet(capabilities, discovered)
        finally:
            self.useful = False
            if discovered is not None and not discovered.done():
                discovered.cancel()

    async def _greet(self, capabilities: Json, discovered: "asyncio.Task[Json] | None") -> None:
        params: Json = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": carried(capabilities),
            "clientInfo": self._info,
        }
        greeted = asyncio.create_task(self.request("initialize", params, _NOBODY))
        try:
            waiting = {greeted} if discovered is None or discovered.done() else {greeted, discovered}
            while waiting and not _good(greeted):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if discovered is not None and self._found_modern(discovered):
                    return
        finally:
            if not greeted.done():
                greeted.cancel()
            greeted.add_done_callback(_good)  # looked at, so that nobody misses its refusal
        greeting = greeted.result()
        if greeting.get("protocolVersion") not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} speaks no protocol version that the gateway knows.")
        self.era, self.version, self.greeting = "handshake", str(greeting["protocolVersion"]), greeting
        await self._tell("notifications/initialized", {})

    def _found_modern(self, discovered: "asyncio.Task[Json]") -> bool:
        if not _good(discovered) or not speaks_modern(discovered.result()):
            return False
        self.era, self.greeting = "modern", discovered.result()
        return True

    async def _send(self, id: int, method: str, params: Json, talk: MessageHandler, idle: bool) -> "_Waiting":
        duplex = self._duplex
        if duplex is None or self.dead:
            raise self._stopped()
        waiting = self._open[id] = _Waiting(talk, idle=idle)
        try:
            await duplex.write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        except BaseException:
            self._open.pop(id, None)
            raise
        return waiting

    # ---- what it says ----

    def _heard(self, message: Json) -> None:
        method, id = message.get("method"), message.get("id")
        if isinstance(method, str):
            params: Any = message.get("params")
            known = cast("Json", params) if isinstance(params, dict) else {}
            if id is None:
                self._notified(method, known)
            else:
                self._spawn(self._answer(id, method, known))
            return
        waiting = self._open.get(id) if isinstance(id, int) else None
        if waiting is not None:
            waiting.settle(_outcome(message, self._name))

    def _notified(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            token = params.get("progressToken")
            for waiting in self._open.values():
                if waiting.talk.token == token and token is not None:
                    waiting.tell(method, params)
                    break
            return
        if method == "notifications/message":
            only = self._only()
            if only is not None:
                only.tell(method, params)
            return
        meta: Any = params.get("_meta")
        stream = cast("Json", meta).get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        listening = self._open.get(stream) if isinstance(stream, int) else None
        hearing = self._hearings[-1]
        if listening is None and hearing is _NOBODY:
            # Nobody follows this process, but a call under way belongs to the same backend.
            listening = next(reversed(self._open.values()), None)
        if listening is not None:
            listening.tell(method, params)
        else:
            self._spawn(hearing.notified(method, params))

    def _only(self) -> "_Waiting | None":
        """The call that a message without a name must belong to; None when it could be another's."""
        calls = [waiting for waiting in self._open.values() if not isinstance(waiting.talk, NullMessageHandler)]
        if len(calls) == 1 or (calls and self._alone):
            return calls[-1]
        return None

    async def _answer(self, id: Any, method: str, params: Json) -> None:
        only = self._only()
        talk = only.talk if only is not None else _NOBODY
        answer: Json = {"jsonrpc": "2.0", "id": id}
        try:
            answer["result"] = await talk.asked(method, params)
        except ForeignError as exc:
            answer["error"] = {"code": exc.code, "message": exc.message}
        if self._duplex is not None:
            await self._duplex.write(answer)

    async def _tell(self, method: str, params: Json) -> None:
        if self._duplex is not None:
            await self._duplex.write({"jsonrpc": "2.0", "method": method, "params": params})

    async def _unsubscribe(self, uri: str) -> None:
        with suppress(ForeignError):
            await self.request("resources/unsubscribe", {"uri": uri}, _NOBODY)

    def _ended(self) -> None:
        self.dead = True
        self.gone.set()
        for waiting in self._open.values():
            waiting.settle(self._stopped())

    def _stopped(self) -> Fault:
        return Fault(Kind.UNAVAILABLE, f"{self._name} has stopped.")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            with suppress(Fault):
                await work

        task = asyncio.create_task(run())
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)


class _Waiting:
    """A request under way: what was said to it and not yet told, and in the end its answer."""

    __slots__ = ("_outcome", "_untold", "_wake", "idle", "talk")

    def __init__(self, talk: MessageHandler, *, idle: bool) -> None:
        self.talk = talk
        self.idle = idle
        self._untold: deque[tuple[str, Json]] = deque()
        self._outcome: Json | Fault | ForeignError | None = None
        self._wake: asyncio.Future[None] | None = None

    async def answer(self) -> Json:
        while True:
            while self._untold:
                await self.talk.notified(*self._untold.popleft())
            if self._outcome is not None:
                if isinstance(self._outcome, dict):
                    return self._outcome
                raise self._outcome
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def tell(self, method: str, params: Json) -> None:
        if len(self._untold) < MAX_UNTOLD:
            self._untold.append((method, params))
            self._rouse()

    def settle(self, outcome: "Json | Fault | ForeignError") -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _good(answer: "asyncio.Task[Json]") -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None


def _outcome(message: Json, name: str) -> "Json | Fault | ForeignError":
    error: Any = message.get("error")
    result: Any = message.get("result")
    if isinstance(error, dict):
        known = cast("Json", error)
        code: Any = known.get("code")
        words = str(known.get("message", ""))
        return ForeignError(code if isinstance(code, int) else -32603, words, known.get("data"))
    if isinstance(result, dict):
        return cast("Json", result)
    return Fault(Kind.UNAVAILABLE, f"{name} answered something else than it was asked.")
