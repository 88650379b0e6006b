"""What was answered to one request, as it came."""

import asyncio
import json
from collections.abc import Callable, Sequence

from gateway.contract import (
    Json,
)
from gateway.sse import SseEvent, SseParser


class Paper:
    """An `Outlet` that keeps what was written. `leave` is the client going away."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.chunks: list[bytes] = []
        self.opened = False
        self.closed = False
        self.over_again = False
        """Whether anything was written after the answer was complete."""
        self.task: asyncio.Task[None] | None = None
        self._gone: list[Callable[[], None]] = []
        self._left = False

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.over_again |= self.closed or self.opened
        self.status, self.headers, self.body = status, _text(headers), body
        self.closed = True

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.over_again |= self.closed or self.opened
        self.status, self.headers = 200, _text(headers)
        self.opened = True
        await asyncio.sleep(0)

    async def write(self, chunk: bytes) -> None:
        self.over_again |= self.closed
        self.chunks.append(chunk)
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.over_again |= self.closed
        self.closed = True

    def on_gone(self, callback: Callable[[], None]) -> None:
        if self._left:
            callback()
        else:
            self._gone.append(callback)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def leave(self) -> None:
        if self.closed or self._left:
            return
        self._left = True
        for callback in self._gone:
            callback()

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def events(self) -> list[SseEvent]:
        """Without those that only give an id."""
        return [each for each in SseParser().feed(b"".join(self.chunks)) if each.data]

    @property
    def messages(self) -> list[Json]:
        return [json.loads(each.data) for each in self.events]

    @property
    def last(self) -> Json:
        """The answer, in either form."""
        return self.messages[-1] if self.opened else self.json

    def sent(self, method: str) -> list[Json]:
        return [each for each in self.messages if each.get("method") == method]


def _text(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}
