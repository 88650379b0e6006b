"""An answer that another worker writes: what only that worker has, a client may fetch from any.

The worker that was reached asks the owner over the bus, and passes on what the owner writes, piece by piece. Each piece
is acknowledged, so that a slow client slows the owner; whoever of the two dies, the other learns of it.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gateway.contract import Bus, Json, ResponseWriter
from gateway.errors import Fault, Kind

_ASK: Final = "relay.ask"
_PIECE: Final = "relay.piece"
_GONE: Final = "relay.gone"
_ALIVE_EVERY: Final = 3.0
_PATIENCE: Final = 40.0
"""Longer than a client may leave a piece unread."""

log = logging.getLogger("gatehouse.relay")

Handler = Callable[[Json, ResponseWriter], Awaitable[None]]
"""Answers what was asked, to an outlet that is really another worker's. Raises `Fault` at once or never."""
Header = tuple[bytes, bytes]


class WorkerProxy:
    """Both halves: what this worker asks of others, and what others ask of it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._numbers = itertools.count(1)
        self._handlers: dict[str, Handler] = {}
        self._fetched: dict[str, tuple[ResponseWriter, asyncio.Event]] = {}
        self._served: dict[str, PeerResponseWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        bus.respond(_ASK, self._asked)
        bus.respond(_PIECE, self._piece)
        bus.respond(_GONE, self._gone)

    @property
    def worker(self) -> str:
        return self._bus.worker

    def serve(self, what: str, handler: Handler) -> None:
        self._handlers[what] = handler

    # ---- the worker that was reached ----

    async def fetch(self, worker: str, what: str, about: Json, outlet: ResponseWriter) -> None:
        """Have that worker answer to this outlet; returns when it has. Raises `Fault` if it did not begin to."""
        id = f"{self._bus.worker}.{next(self._numbers)}"
        over = asyncio.Event()
        self._fetched[id] = (outlet, over)
        outlet.on_gone(lambda: self._spawn(self._tell_gone(worker, id)))
        try:
            question: Json = {"id": id, "from": self._bus.worker, "what": what, "about": about}
            await self._bus.request(worker, _ASK, question)
            await self._until_over(worker, id, over)
        finally:
            del self._fetched[id]

    async def _until_over(self, worker: str, id: str, over: asyncio.Event) -> None:
        while True:
            try:
                async with asyncio.timeout(_ALIVE_EVERY):
                    await over.wait()
                return
            except TimeoutError:
                pass
            try:
                alive = await self._bus.request(worker, _GONE, {"id": id, "look": True})
            except Fault:
                alive = {"serving": False}
            if not alive["serving"] and not over.is_set():
                # Its worker died, or has lost it: the client is let go, and may come back for the rest.
                await self._fetched[id][0].close()
                return

    async def _tell_gone(self, worker: str, id: str) -> None:
        try:
            await self._bus.request(worker, _GONE, {"id": id})
        except Fault:
            log.debug("a worker could not be told that its client left")

    async def _piece(self, message: Json) -> Json:
        outlet, over = self._fetched.get(message["id"], (None, None))
        if outlet is None or over is None:
            raise Fault(Kind.UNAVAILABLE, "Nobody waits for this answer any more.")
        match message["do"]:
            case "answer":
                await outlet.answer(message["status"], _bytes(message["headers"]), message["body"].encode())
                over.set()
            case "open":
                await outlet.open(_bytes(message["headers"]))
            case "write":
                await outlet.write(message["body"].encode())
            case _:
                await outlet.close()
                over.set()
        return {}

    # ---- the owner ----

    async def _asked(self, question: Json) -> Json:
        handler = self._handlers.get(question["what"])
        if handler is None:
            raise Fault(Kind.UNAVAILABLE, "This worker does not know what that is.")
        id: str = question["id"]
        outlet = self._served[id] = PeerResponseWriter(self._bus, question["from"], id)
        self._spawn(self._run(handler, question["about"], outlet))
        # A handler refuses before it waits for anything: then whoever asked is told, and may answer in its own words.
        await asyncio.sleep(0)
        if outlet.refusal is not None:
            raise outlet.refusal
        return {}

    async def _run(self, handler: Handler, about: Json, outlet: "PeerResponseWriter") -> None:
        outlet.task = asyncio.current_task()
        try:
            await handler(about, outlet)
        except Fault as fault:
            outlet.refusal = fault
        finally:
            self._served.pop(outlet.id, None)

    async def _gone(self, message: Json) -> Json:
        outlet = self._served.get(message["id"])
        if outlet is not None and not message.get("look"):
            outlet.lost()
        return {"serving": outlet is not None}

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class PeerResponseWriter:
    """`gateway.contract.Outlet` of a client that is connected to another worker."""

    def __init__(self, bus: Bus, worker: str, id: str) -> None:
        self.id = id
        self.task: asyncio.Task[None] | None = None
        self.refusal: Fault | None = None
        self._bus = bus
        self._worker = worker
        self._callbacks: list[Callable[[], None]] = []
        self._over = False

    async def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        await self._send({"do": "answer", "status": status, "headers": _text(headers), "body": body.decode()})
        self._over = True

    async def open(self, headers: Sequence[Header]) -> None:
        await self._send({"do": "open", "headers": _text(headers)})

    async def write(self, chunk: bytes) -> None:
        await self._send({"do": "write", "body": chunk.decode()})

    async def close(self) -> None:
        await self._send({"do": "close"})
        self._over = True

    def on_gone(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def lost(self) -> None:
        """Its client has left, or the worker that the client was connected to."""
        if not self._over:
            self._over = True
            for callback in self._callbacks:
                callback()

    async def _send(self, piece: Json) -> None:
        if self._over:
            return
        try:
            await self._bus.request(self._worker, _PIECE, {"id": self.id, **piece}, timeout=_PATIENCE)
        except Fault:
            self.lost()


def _text(headers: Sequence[Header]) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]


def _bytes(headers: list[list[str]]) -> list[Header]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
