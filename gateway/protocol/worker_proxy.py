"""Proxies a response from the worker that owns a stream or parked call to the worker that the client reached.

The receiving worker sends a request to the owner over the bus and forwards the chunks of the response to the client.
Each chunk is acknowledged, so that a slow client slows the owner. Each side detects when the other one stops.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gateway.contract import Bus, Json, ResponseWriter
from gateway.errors import Fault, Kind

_REQUEST_TOPIC: Final = "relay.ask"
_CHUNK_TOPIC: Final = "relay.piece"
_DISCONNECT_TOPIC: Final = "relay.gone"
_PROBE_SECONDS: Final = 3.0
_CHUNK_TIMEOUT: Final = 40.0
"""Longer than a client may take to read a chunk."""

log = logging.getLogger("gatehouse.protocol")

ProxyHandler = Callable[[Json, ResponseWriter], Awaitable[None]]
"""Serves a request of another worker. Raises `Fault` before its first await or not at all."""
Header = tuple[bytes, bytes]


class WorkerProxy:
    """Fetches responses from other workers, and serves the requests of other workers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._numbers = itertools.count(1)
        self._handlers: dict[str, ProxyHandler] = {}
        self._fetching: dict[str, tuple[ResponseWriter, asyncio.Event]] = {}
        self._serving: dict[str, PeerResponseWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        bus.respond(_REQUEST_TOPIC, self._handle_request)
        bus.respond(_CHUNK_TOPIC, self._handle_chunk)
        bus.respond(_DISCONNECT_TOPIC, self._handle_disconnect)

    @property
    def worker(self) -> str:
        return self._bus.worker

    def serve(self, kind: str, handler: ProxyHandler) -> None:
        """Serve requests of this kind from other workers with `handler`."""
        self._handlers[kind] = handler

    # ---- the worker that the client reached ----

    async def fetch(self, worker: str, kind: str, payload: Json, writer: ResponseWriter) -> None:
        """Forward another worker's response to `writer` until it is complete. Raises `Fault` if it does not begin."""
        id = f"{self._bus.worker}.{next(self._numbers)}"
        done = asyncio.Event()
        self._fetching[id] = (writer, done)
        writer.on_disconnect(lambda: self._spawn(self._notify_disconnect(worker, id)))
        try:
            request: Json = {"id": id, "from": self._bus.worker, "what": kind, "about": payload}
            await self._bus.request(worker, _REQUEST_TOPIC, request)
            await self._wait_until_done(worker, id, done)
        finally:
            del self._fetching[id]

    async def _wait_until_done(self, worker: str, id: str, done: asyncio.Event) -> None:
        while True:
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    await done.wait()
                return
            except TimeoutError:
                pass
            try:
                status = await self._bus.request(worker, _DISCONNECT_TOPIC, {"id": id, "look": True})
            except Fault:
                status = {"serving": False}
            if not status["serving"] and not done.is_set():
                # The owner stopped or no longer serves the request: disconnect the client, which can then resume.
                await self._fetching[id][0].close()
                return

    async def _notify_disconnect(self, worker: str, id: str) -> None:
        try:
            await self._bus.request(worker, _DISCONNECT_TOPIC, {"id": id})
        except Fault:
            log.debug("worker %s could not be notified of a client disconnect", worker)

    async def _handle_chunk(self, message: Json) -> Json:
        writer, done = self._fetching.get(message["id"], (None, None))
        if writer is None or done is None:
            raise Fault(Kind.UNAVAILABLE, "No request is waiting for this response.")
        match message["do"]:
            case "answer":
                await writer.send(message["status"], _bytes(message["headers"]), message["body"].encode())
                done.set()
            case "open":
                await writer.open(_bytes(message["headers"]))
            case "write":
                await writer.write(message["body"].encode())
            case _:
                await writer.close()
                done.set()
        return {}

    # ---- the owner ----

    async def _handle_request(self, request: Json) -> Json:
        handler = self._handlers.get(request["what"])
        if handler is None:
            raise Fault(Kind.UNAVAILABLE, "This worker does not serve requests of this kind.")
        id: str = request["id"]
        writer = self._serving[id] = PeerResponseWriter(self._bus, request["from"], id)
        self._spawn(self._run(handler, request["about"], writer))
        # A handler raises before its first await: let it start, so that the refusal reaches the requesting worker.
        await asyncio.sleep(0)
        if writer.refusal is not None:
            raise writer.refusal
        return {}

    async def _run(self, handler: ProxyHandler, payload: Json, writer: "PeerResponseWriter") -> None:
        writer.task = asyncio.current_task()
        try:
            await handler(payload, writer)
        except Fault as fault:
            writer.refusal = fault
        finally:
            self._serving.pop(writer.id, None)

    async def _handle_disconnect(self, message: Json) -> Json:
        writer = self._serving.get(message["id"])
        if writer is not None and not message.get("look"):
            writer.disconnect()
        return {"serving": writer is not None}

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class PeerResponseWriter:
    """A `ResponseWriter` for a client that is connected to another worker."""

    def __init__(self, bus: Bus, worker: str, id: str) -> None:
        self.id = id
        self.task: asyncio.Task[None] | None = None
        self.refusal: Fault | None = None
        self._bus = bus
        self._worker = worker
        self._callbacks: list[Callable[[], None]] = []
        self._closed = False

    async def send(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        await self._send({"do": "answer", "status": status, "headers": _text(headers), "body": body.decode()})
        self._closed = True

    async def open(self, headers: Sequence[Header]) -> None:
        await self._send({"do": "open", "headers": _text(headers)})

    async def write(self, chunk: bytes) -> None:
        await self._send({"do": "write", "body": chunk.decode()})

    async def close(self) -> None:
        await self._send({"do": "close"})
        self._closed = True

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def disconnect(self) -> None:
        """Report that the client disconnected, or that its worker stopped."""
        if not self._closed:
            self._closed = True
            for callback in self._callbacks:
                callback()

    async def _send(self, chunk: Json) -> None:
        if self._closed:
            return
        try:
            await self._bus.request(self._worker, _CHUNK_TOPIC, {"id": self.id, **chunk}, timeout=_CHUNK_TIMEOUT)
        except Fault:
            self.disconnect()


def _text(headers: Sequence[Header]) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]


def _bytes(headers: list[list[str]]) -> list[Header]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
