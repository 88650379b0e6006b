"""Things that each wait as long, with one timer for all of them.

Event streams of the handshake era: a client may leave one and come back for what it missed.
"""

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from gateway.contract import ResponseWriter
from gateway.protocol.responses import Header, stream_headers
from gateway.sse import COMMENT, event, priming

Item = TypeVar("Item")

_EARLY: Final = 1.0

"""Those that are due within so many seconds go together."""


class ExpiryQueue(Generic[Item]):
    """`due` is called with each item, so many seconds after it was added and at most one too early."""

    def __init__(self, seconds: float, due: Callable[[Item], None]) -> None:
        self._seconds = seconds
        self._due = due
        self._waiting: deque[tuple[float, Item]] = deque()

    def add(self, item: Item) -> None:
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + self._seconds, item))
        if len(self._waiting) == 1:
            loop.call_later(self._seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        soon = loop.time() + _EARLY
        try:
            while self._waiting and self._waiting[0][0] <= soon:
                self._due(self._waiting.popleft()[1])
        finally:  # one that fails is the loop's to log, and keeps none of the others waiting for ever
            if self._waiting:
                loop.call_at(self._waiting[0][0], self._look, loop)


KEPT_BYTES: Final = 1 << 20

KEPT_SECONDS: Final = 60.0

PRINCIPAL_BYTES: Final = 8 << 20

PROCESS_BYTES: Final = 64 << 20

"""What streams that are over may hold until then."""

RETRY_MS: Final = 1000

MAX_STREAMS: Final = 10_000

_LEFT: Final = asyncio.Event()

"""What a stream that nobody reads waits for: one for all of them, and it has happened."""

_LEFT.set()


class EventStream:
    """Events in order, kept for a while, written to whoever is attached now."""

    __slots__ = (
        "_adopted", "_correlation_id", "_kept", "_last", "_left", "_outlet", "_writing", "dropped", "id", "kept_bytes",
        "over", "owner", "principal", "silent_since",
    )  # fmt: skip

    def __init__(self, id: str, owner: str, correlation_id: str, principal: str = "") -> None:
        self.id = id
        self.owner = owner
        self.principal = principal
        self.silent_since = time.monotonic()
        self._correlation_id = correlation_id
        self._kept: list[tuple[int, bytes]] = []
        self.kept_bytes = 0
        self._last = 0
        self.dropped = 0
        """The last event that is not kept any more."""
        self._adopted: tuple[ResponseWriter, bool] | None = None
        self._outlet: ResponseWriter | None = None
        self._writing = asyncio.Lock()
        self.over = False
        self._left = asyncio.Event()

    def adopt(self, outlet: ResponseWriter, *, prime: bool = False) -> None:
        """Write to this outlet from the next event on; it is opened with it, so that nothing overtakes the first."""
        self._adopted = (outlet, prime)

    async def attach(
        self, outlet: ResponseWriter, *more: Header, after: int | None = None, prime: bool = False
    ) -> None:
        """Write to this outlet from now on, beginning with what came after event `after`. It takes another's place."""
        async with self._writing:
            await self._close()
            await self._begin(outlet, *more, prime=prime)
            for number, chunk in list(self._kept) if after is not None else ():
                if number > (after or 0):
                    await outlet.write(chunk)
            if self.over:
                await self._close()

    async def send(self, payload: bytes) -> None:
        async with self._writing:
            await self._settle()
            self._last += 1
            chunk = event(payload, self._name(self._last))
            self._keep(chunk)
            if self._outlet is not None:
                await self._outlet.write(chunk)
        self.silent_since = time.monotonic()

    async def hang_up(self) -> None:
        """Let the client go; the stream itself goes on."""
        async with self._writing:
            await self._settle()
            await self._close()

    async def end(self) -> None:
        async with self._writing:
            await self._settle()
            self.over = True
            await self._close()

    def abandon(self) -> None:
        """It is over, and whoever is attached was let go already."""
        self.over = True
        self._outlet = None
        self._leave()

    async def attended(self) -> None:
        """Until the stream is over, or its client has left."""
        await self._left.wait()

    async def keep_alive(self) -> None:
        async with self._writing:
            await self._settle()
            if self._outlet is not None:
                await self._outlet.write(COMMENT)
        self.silent_since = time.monotonic()

    @property
    def alone(self) -> bool:
        return self._outlet is None

    async def _settle(self) -> None:
        if self._adopted is not None:
            (outlet, prime), self._adopted = self._adopted, None
            await self._begin(outlet, prime=prime)

    async def _begin(self, outlet: ResponseWriter, *more: Header, prime: bool) -> None:
        await outlet.open(stream_headers(self._correlation_id, *more))
        if prime:
            self._last += 1
            await outlet.write(priming(self._name(self._last), RETRY_MS))
        self._left = asyncio.Event()
        self._outlet = outlet
        outlet.on_gone(partial(self._detach, outlet))

    def _detach(self, outlet: ResponseWriter) -> None:
        """Its client is gone; unless another has taken its place, nobody is attached."""
        if self._outlet is outlet:
            self._outlet = None
            self._leave()

    async def _close(self) -> None:
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            await outlet.close()
        self._leave()

    def _leave(self) -> None:
        self._left.set()
        self._left = _LEFT

    def _name(self, number: int) -> str:
        return f"{self.id}.{number}"

    def _keep(self, chunk: bytes) -> None:
        self._kept.append((self._last, chunk))
        self.kept_bytes += len(chunk)
        # The last is kept however large: it is the answer.
        while self.kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self.dropped, dropped = self._kept.pop(0)
            self.kept_bytes -= len(dropped)


class EventStreams:
    """The streams of this worker, by id; each is kept a minute after its end, or after its client left.

    What is over holds at most so many bytes, of each principal and in all; the oldest go first.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._streams: dict[str, EventStream] = {}
        self._ended: dict[str, EventStream] = {}
        """Those that are over, in the order of their ends; and the same again by principal."""
        self._principals: dict[str, dict[str, EventStream]] = {}
        self._bytes: Counter[str] = Counter()
        self._all_bytes = 0
        self._leaving = ExpiryQueue(KEPT_SECONDS, self._forget_if_left)

    def __len__(self) -> int:
        """How many are not over yet."""
        return sum(not stream.over for stream in self._streams.values())

    def new(self, owner: str, correlation_id: str, principal: str = "") -> EventStream:
        stream = EventStream(f"{self._worker}.{secrets.token_hex(8)}", owner, correlation_id, principal)
        self._streams[stream.id] = stream
        while len(self._streams) > MAX_STREAMS:
            self.forget(next(iter(self._streams.values())))
        return stream

    def find(self, event_id: str, owner: str) -> tuple[EventStream, int] | None:
        """The owner's stream that an event belongs to, and the event's number in it."""
        id, _, number = event_id.rpartition(".")
        stream = self._streams.get(id)
        if stream is None or stream.owner != owner or not number.isascii() or not number.isdigit():
            return None
        if int(number[:18]) < stream.dropped:
            return None  # part of what was missed is lost
        return stream, int(number[:18])

    def forget_later(self, stream: EventStream) -> None:
        """It is over: in a minute, or sooner where newer ones need the room."""
        if stream.id in self._streams:
            self._ended[stream.id] = stream
            self._principals.setdefault(stream.principal, {})[stream.id] = stream
            self._bytes[stream.principal] += stream.kept_bytes
            self._all_bytes += stream.kept_bytes
            self._make_room(stream.principal)
        # Not the stream itself: it would be held as long, whatever became of it.
        self._leaving.add(stream.id)

    def forget(self, stream: EventStream) -> None:
        """Nobody may come back to it."""
        self._streams.pop(stream.id, None)
        if self._ended.pop(stream.id, None) is not None:
            principal = stream.principal
            self._all_bytes -= stream.kept_bytes
            self._bytes[principal] -= stream.kept_bytes
            del self._principals[principal][stream.id]
            if not self._principals[principal]:
                del self._principals[principal], self._bytes[principal]

    def _make_room(self, principal: str) -> None:
        """The newest stays, however large: it is an answer that its client may be about to ask for again."""
        mine = self._principals[principal]
        while self._bytes[principal] > PRINCIPAL_BYTES and len(mine) > 1:
            self.forget(next(iter(mine.values())))
        while self._all_bytes > PROCESS_BYTES and len(self._ended) > 1:
            self.forget(next(iter(self._ended.values())))

    def _forget_if_left(self, id: str) -> None:
        stream = self._streams.get(id)
        if stream is not None and (stream.over or stream.alone):
            self.forget(stream)
