"""A TCP proxy that injects faults: delays, resets, silence and slow responses."""

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
"""Seconds between two bytes of a slow response."""
_ABORTIVE_CLOSE: Final = struct.pack("ii", 1, 0)

Pair = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


class FaultProxy:
    """`with FaultProxy(port) as proxy:` listens on `proxy.port` in its own thread; `target` is a port or a socket path.

    A fault applies at once, to open and to new connections. `latency` delays every chunk in both directions. `reset`
    resets every connection. `half-open` accepts connections and data but forwards nothing. `slow body` sends
    responses byte by byte.
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
        async def apply() -> None:
            self._set(fault)

        asyncio.run_coroutine_threadsafe(apply(), self._loop).result(10)

    # ---- runs in the proxy's thread ----

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
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # either side disconnected, or the proxy closes
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._target, int):
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target)
        else:
            target_reader, target_writer = await asyncio.open_unix_connection(self._target)
        pair = (writer, target_writer)
        self._pairs.add(pair)
        if self._fault == "reset":
            self._reset(pair)
        pumps = [
            asyncio.create_task(self._pump(reader, target_writer, is_response=False)),
            asyncio.create_task(self._pump(target_reader, writer, is_response=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._pairs.discard(pair)
            target_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_response: bool) -> None:
        while chunk := await reader.read(65536):
            if self._fault == "latency":
                await asyncio.sleep(LATENCY)
            while self._fault == "half-open":
                await self._changed.wait()
            if self._fault == "slow body" and is_response:
                await self._drip(chunk, writer)
            else:
                writer.write(chunk)
                await writer.drain()

    async def _drip(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        for index in range(len(chunk)):
            if self._fault != "slow body":
                writer.write(chunk[index:])
                break
            writer.write(chunk[index : index + 1])
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), DRIP)
        await writer.drain()

    def _reset(self, pair: Pair) -> None:
        for writer in pair:
            sock = writer.get_extra_info("socket")
            if sock is not None:
                with suppress(OSError):  # closed already
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTIVE_CLOSE)
            writer.transport.abort()
