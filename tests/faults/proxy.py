"""A proxy of ours in front of anything that speaks TCP: it delays, resets, goes silent or drips, as it is told."""

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from typing import Final, Literal, Self

Fault = Literal["none", "latency", "reset", "half-open", "slow body"]
FAULTS: Final[tuple[Fault, ...]] = ("latency", "reset", "half-open", "slow body")
LATENCY: Final = 0.2
DRIP: Final = 0.05
"""Seconds between two bytes of an answer that drips."""
_DEAD: Final = struct.pack("ii", 1, 0)

Pair = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


class FaultProxy:
    """`with FaultProxy(port) as proxy:` listens on `proxy.port`, in a thread of its own; `target` is a port, or the
    path of a socket.

    A fault holds from the moment it is set, for connections that are open as for new ones:
    `latency` delays every piece either way; `reset` breaks every connection at once, and each new one; `half-open`
    takes connections and all that is sent, and passes nothing on; `slow body` lets answers drip byte by byte.
    """

    def __init__(self, target: int | str) -> None:
        self._target = target
        self._fault: Fault = "none"
        self._changed = asyncio.Event()
        self._pairs: set[Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def set(self, fault: Fault) -> None:
        async def now() -> None:
            self._set(fault)

        asyncio.run_coroutine_threadsafe(now(), self._loop).result(10)

    # ---- in its own thread ----

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _set(self, fault: Fault) -> None:
        self._fault = fault
        self._changed.set()
        self._changed = asyncio.Event()
        if fault == "reset":
            for pair in tuple(self._pairs):
                self._reset(pair)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._pass_on(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # either side is gone, or the proxy is
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._target, int):
            upstream, down = await asyncio.open_connection("127.0.0.1", self._target)
        else:
            upstream, down = await asyncio.open_unix_connection(self._target)
        pair = (writer, down)
        self._pairs.add(pair)
        if self._fault == "reset":
            self._reset(pair)
        both = [
            asyncio.create_task(self._pump(reader, down, answers=False)),
            asyncio.create_task(self._pump(upstream, writer, answers=True)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._pairs.discard(pair)
            down.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while chunk := await reader.read(65536):
            if self._fault == "latency":
                await asyncio.sleep(LATENCY)
            while self._fault == "half-open":
                await self._changed.wait()
            if self._fault == "slow body" and answers:
                await self._drip(chunk, writer)
            else:
                writer.write(chunk)
                await writer.drain()

    async def _drip(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        for at in range(len(chunk)):
            if self._fault != "slow body":
                writer.write(chunk[at:])
                break
            writer.write(chunk[at : at + 1])
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), DRIP)
        await writer.drain()

    def _reset(self, pair: Pair) -> None:
        for side in pair:
            sock = side.get_extra_info("socket")
            if sock is not None:
                with suppress(OSError):  # closed already
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DEAD)
            side.transport.abort()
