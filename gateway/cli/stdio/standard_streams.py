"""Lines from the client and lines to it. Any kind of standard stream will do, a file included."""

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
_PIECE: Final = 64 * 1024


async def lines(descriptor: int, limit: int = MAX_LINE) -> AsyncIterator[bytes]:
    """Each line until the stream ends; what is not taken is not read. Raises `Oversize` for one beyond the limit."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue(1)
    loop = asyncio.get_running_loop()

    def read() -> None:
        piece = b"-"
        while piece:
            try:
                piece = os.read(descriptor, _PIECE)
                asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()
            except (OSError, RuntimeError):  # closed under us, or the loop is gone
                piece = b""

    # A read cannot be called off: the thread must not keep the process alive.
    threading.Thread(target=read, daemon=True).start()
    split = LineReader(limit)
    while piece := await pieces.get():
        for line in split.feed(piece):
            if line.strip():
                yield line


class LineWriter:
    """Whole lines, one after another, however the tasks that say them end; waits for a client that reads slowly."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        # As with reading: a write that waits for a client must not keep the process alive.
        threading.Thread(target=self._write_all, daemon=True).start()

    def watch(self, gone: Callable[[], object]) -> None:
        """Call `gone` when nobody is there any more to read, also while nothing is written."""

        def look() -> None:
            poller = select.poll()
            # Only what is told in any case: that the other end is closed.
            poller.register(self._descriptor, 0)
            poller.poll()
            with suppress(RuntimeError):  # the loop is gone
                self._loop.call_soon_threadsafe(gone)

        threading.Thread(target=look, daemon=True).start()

    async def line(self, message: bytes) -> None:
        """Raises `OSError` when the client is gone."""
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
            except RuntimeError:  # the loop is gone
                return


def _settle(written: "asyncio.Future[None]", problem: OSError | None) -> None:
    if written.done():
        return
    if problem is None:
        written.set_result(None)
    else:
        written.set_exception(problem)


__all__ = ["MAX_LINE", "LineTooLong", "LineWriter", "lines"]
