"""Lines from the client and lines to it. Any kind of standard stream will do, a file included."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

from gateway.upstream.stdio.lines import Lines, Oversize

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
    split = Lines(limit)
    while piece := await pieces.get():
        for line in split.feed(piece):
            if line.strip():
                yield line


class Out:
    """Whole lines, one after another; waits for a client that reads slowly."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = asyncio.Lock()

    async def line(self, message: bytes) -> None:
        """Raises `OSError` when the client is gone."""
        async with self._turn:
            await asyncio.to_thread(self._write, message.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n")

    def _write(self, left: bytes) -> None:
        while left:
            left = left[os.write(self._descriptor, left) :]


__all__ = ["MAX_LINE", "Out", "Oversize", "lines"]
