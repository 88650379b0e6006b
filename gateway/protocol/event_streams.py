"""Resumable event streams of the handshake era, and the expiry queue that removes them.

A client may disconnect and come back for the events that it missed. `LegacyWire` and `GetStreams` write the streams.
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
from gateway.sse import KEEP_ALIVE_COMMENT, event, priming_event

MAX_STREAM_BYTES: Final = 1 << 20
"""Maximum bytes buffered for one stream."""
RETENTION_SECONDS: Final = 60.0
"""How long a stream is kept after its end, or after its client disconnected."""
MAX_PRINCIPAL_BYTES: Final = 8 << 20
"""Maximum bytes buffered in the ended streams of one principal."""
MAX_PROCESS_BYTES: Final = 64 << 20
"""Maximum bytes buffered in the ended streams of this process."""
RETRY_MS: Final = 1000
"""The reconnection delay that is sent to clients."""
MAX_STREAMS: Final = 10_000

Item = TypeVar("Item")
_COALESCE_SECONDS: Final = 1.0
"""Items that are due within this time of each other expire together."""
_DETACHED: Final = asyncio.Event()
"""The event of every stream without a client: shared, and always set."""
_DETACHED.set()


class ExpiryQueue(Generic[Item]):
    """FIFO expiry queue with a single timer; all items share one delay.

    `on_expire` is called with each item `seconds` after it was added, at most one second early.
    """

    def __init__(self, seconds: float, on_expire: Callable[[Item], None]) -> None:
        self._seconds = seconds
        self._on_expire = on_expire
        self._waiting: deque[tuple[float, Item]] = deque()

    def add(self, item: Item) -> None:
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + self._seconds, item))
        if len(self._waiting) == 1:
            loop.call_later(self._seconds, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        deadline = loop.time() + _COALESCE_SECONDS
        try:
            while self._waiting and self._waiting[0][0] <= deadline:
                self._on_expire(self._waiting.popleft()[1])
        finally:  # The event loop logs a failed callback; the remaining items still expire.
            if self._waiting:
                loop.call_at(self._waiting[0][0], self._expire, loop)


class EventStream:
    """An ordered, buffered stream of events; they are written to the attached client, if there is one."""

    __slots__ = (
        "_buffer", "_correlation_id", "_detached", "_last_number", "_pending_writer", "_write_lock", "_writer",
        "buffered_bytes", "id", "idle_since", "is_ended", "last_evicted", "owner", "principal",
    )  # fmt: skip

    def __init__(self, id: str, owner: str, correlation_id: str, principal: str = "") -> None:
        self.id = id
        self.owner = owner
        self.principal = principal
        self.idle_since = time.monotonic()
        self._correlation_id = correlation_id
        self._buffer: list[tuple[int, bytes]] = []
        self.buffered_bytes = 0
        self._last_number = 0
        self.last_evicted = 0
        """The number of the last event that is no longer buffered."""
        self._pending_writer: tuple[ResponseWriter, bool] | None = None
        self._writer: ResponseWriter | None = None
        self._write_lock = asyncio.Lock()
        self.is_ended = False
        self._detached = asyncio.Event()

    def attach_lazily(self, writer: ResponseWriter, *, prime: bool = False) -> None:
        """Attach this writer with the next event, so that nothing is written before the first event."""
        self._pending_writer = (writer, prime)

    async def attach(
        self, writer: ResponseWriter, *extra_headers: Header, after: int | None = None, prime: bool = False
    ) -> None:
        """Replace the attached writer; first replay the buffered events after number `after`, unless it is None."""
        async with self._write_lock:
            await self._close()
            await self._start(writer, *extra_headers, prime=prime)
            for number, chunk in list(self._buffer) if after is not None else ():
                if number > (after or 0):
                    await writer.write(chunk)
            if self.is_ended:
                await self._close()

    async def send(self, payload: bytes) -> None:
        async with self._write_lock:
            await self._attach_pending()
            self._last_number += 1
            chunk = event(payload, self._event_id(self._last_number))
            self._append(chunk)
            if self._writer is not None:
                await self._writer.write(chunk)
        self.idle_since = time.monotonic()

    async def detach(self) -> None:
        """End the client's response; the stream stays open and buffers its events."""
        async with self._write_lock:
            await self._attach_pending()
            await self._close()

    async def end(self) -> None:
        async with self._write_lock:
            await self._attach_pending()
            self.is_ended = True
            await self._close()

    def abandon(self) -> None:
        """End the stream without closing the writer, which the caller has closed already."""
        self.is_ended = True
        self._writer = None
        self._signal_detached()

    async def wait_detached(self) -> None:
        """Wait until the stream ends or its client disconnects."""
        await self._detached.wait()

    async def keep_alive(self) -> None:
        async with self._write_lock:
            await self._attach_pending()
            if self._writer is not None:
                await self._writer.write(KEEP_ALIVE_COMMENT)
        self.idle_since = time.monotonic()

    @property
    def is_detached(self) -> bool:
        return self._writer is None

    async def _attach_pending(self) -> None:
        if self._pending_writer is not None:
            (writer, prime), self._pending_writer = self._pending_writer, None
            await self._start(writer, prime=prime)

    async def _start(self, writer: ResponseWriter, *extra_headers: Header, prime: bool) -> None:
        await writer.open(stream_headers(self._correlation_id, *extra_headers))
        if prime:
            self._last_number += 1
            await writer.write(priming_event(self._event_id(self._last_number), RETRY_MS))
        self._detached = asyncio.Event()
        self._writer = writer
        writer.on_disconnect(partial(self._on_disconnect, writer))

    def _on_disconnect(self, writer: ResponseWriter) -> None:
        """Detach the writer, unless another one has replaced it."""
        if self._writer is writer:
            self._writer = None
            self._signal_detached()

    async def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()
        self._signal_detached()

    def _signal_detached(self) -> None:
        self._detached.set()
        self._detached = _DETACHED

    def _event_id(self, number: int) -> str:
        return f"{self.id}.{number}"

    def _append(self, chunk: bytes) -> None:
        self._buffer.append((self._last_number, chunk))
        self.buffered_bytes += len(chunk)
        # The last event is kept whatever its size: it is the response.
        while self.buffered_bytes > MAX_STREAM_BYTES and len(self._buffer) > 1:
            self.last_evicted, evicted = self._buffer.pop(0)
            self.buffered_bytes -= len(evicted)


class EventStreams:
    """The event streams of this worker by id.

    A stream is kept for `RETENTION_SECONDS` after it ended or its client disconnected. The buffered bytes of ended
    streams are limited per principal and per process; the oldest streams are evicted first.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._streams: dict[str, EventStream] = {}
        self._ended: dict[str, EventStream] = {}
        """Ended streams in the order in which they ended; `_ended_by_principal` holds the same streams."""
        self._ended_by_principal: dict[str, dict[str, EventStream]] = {}
        self._bytes_by_principal: Counter[str] = Counter()
        self._total_bytes = 0
        self._expiry = ExpiryQueue(RETENTION_SECONDS, self._remove_if_unused)

    def __len__(self) -> int:
        """Return the number of streams that have not ended."""
        return sum(not stream.is_ended for stream in self._streams.values())

    def create(self, owner: str, correlation_id: str, principal: str = "") -> EventStream:
        stream = EventStream(f"{self._worker}.{secrets.token_hex(8)}", owner, correlation_id, principal)
        self._streams[stream.id] = stream
        while len(self._streams) > MAX_STREAMS:
            self.remove(next(iter(self._streams.values())))
        return stream

    def find(self, event_id: str, owner: str) -> tuple[EventStream, int] | None:
        """Return the owner's stream of an event id and the number of the event; None if it cannot be resumed."""
        id, _, number = event_id.rpartition(".")
        stream = self._streams.get(id)
        if stream is None or stream.owner != owner or not number.isascii() or not number.isdigit():
            return None
        if int(number[:18]) < stream.last_evicted:
            return None  # Some of the missed events were evicted.
        return stream, int(number[:18])

    def schedule_removal(self, stream: EventStream) -> None:
        """Remove an ended stream after `RETENTION_SECONDS`, or sooner if the limits are exceeded."""
        if stream.id in self._streams:
            self._ended[stream.id] = stream
            self._ended_by_principal.setdefault(stream.principal, {})[stream.id] = stream
            self._bytes_by_principal[stream.principal] += stream.buffered_bytes
            self._total_bytes += stream.buffered_bytes
            self._evict(stream.principal)
        # The id, not the stream: the queue must not keep an evicted stream in memory.
        self._expiry.add(stream.id)

    def remove(self, stream: EventStream) -> None:
        """Remove a stream at once; it can no longer be resumed."""
        self._streams.pop(stream.id, None)
        if self._ended.pop(stream.id, None) is not None:
            principal = stream.principal
            self._total_bytes -= stream.buffered_bytes
            self._bytes_by_principal[principal] -= stream.buffered_bytes
            del self._ended_by_principal[principal][stream.id]
            if not self._ended_by_principal[principal]:
                del self._ended_by_principal[principal], self._bytes_by_principal[principal]

    def _evict(self, principal: str) -> None:
        """Evict the oldest ended streams above the limits, but never the newest: its client may be reconnecting."""
        ended = self._ended_by_principal[principal]
        while self._bytes_by_principal[principal] > MAX_PRINCIPAL_BYTES and len(ended) > 1:
            self.remove(next(iter(ended.values())))
        while self._total_bytes > MAX_PROCESS_BYTES and len(self._ended) > 1:
            self.remove(next(iter(self._ended.values())))

    def _remove_if_unused(self, id: str) -> None:
        stream = self._streams.get(id)
        if stream is not None and (stream.is_ended or stream.is_detached):
            self.remove(stream)
