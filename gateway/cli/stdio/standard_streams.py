"""Reads lines from and writes lines to standard streams of any kind: pipes, terminals and files."""

import asyncio
import os
import queue
import select
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from gateway.upstream.stdio.line_reader import LineReader, LineTooLong

MAX_LINE: Final = 8 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024


async def read_lines(descriptor: int, limit: int = MAX_LINE) -> AsyncIterator[bytes]:
    """Yield each line until the stream ends, with back pressure. Raises `LineTooLong` above the limit."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue(1)
    loop = asyncio.get_running_loop()

    def read() -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (OSError, RuntimeError):  # the descriptor or the event loop was closed
                chunk = b""

    # A blocking read cannot be cancelled: a daemon thread does not keep the process alive.
    threading.Thread(target=read, daemon=True).start()
    reader = LineReader(limit)
    while chunk := await chunks.get():
        for line in reader.feed(chunk):
            if line.strip():
                yield line


class LineWriter:
    """Writes complete lines in order, even if a writing task is cancelled; waits for a slow reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        # Daemon: a blocked write does not keep the process alive.
        threading.Thread(target=self._write_all, daemon=True).start()

    def watch_disconnect(self, on_disconnect: Callable[[], object]) -> None:
        """Call `on_disconnect` when the reader closes its end, even while nothing is written."""

        def poll() -> None:
            poller = select.poll()
            # No events requested: hang-up and error are always reported.
            poller.register(self._descriptor, 0)
            poller.poll()
            with suppress(RuntimeError):  # the event loop was closed
                self._loop.call_soon_threadsafe(on_disconnect)

        threading.Thread(target=poll, daemon=True).start()

    async def write_line(self, message: bytes) -> None:
        """Raises `OSError` when the client has disconnected."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._lines.put((message.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n", written))
        await written

    def _write_all(self) -> None:
        while True:
            line, written = self._lines.get()
            problem: OSError | None = None
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError as exc:
                problem = exc
            try:
                self._loop.call_soon_threadsafe(_settle, written, problem)
            except RuntimeError:  # the event loop was closed
                return


def _settle(written: "asyncio.Future[None]", problem: OSError | None) -> None:
    if written.done():
        return
    if problem is None:
        written.set_result(None)
    else:
        written.set_exception(problem)


__all__ = ["MAX_LINE", "LineTooLong", "LineWriter", "read_lines"]
