"""A fake response writer that records the response to one request."""

import asyncio
import json
from collections.abc import Callable, Sequence

from gateway.contract import (
    Json,
)
from gateway.sse import SseEvent, SseParser


class FakeResponseWriter:
    """A `ResponseWriter` that records what is written. `disconnect` simulates that the client disconnects."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.chunks: list[bytes] = []
        self.opened = False
        self.closed = False
        self.written_after_end = False
        """Whether anything was written after the response was complete."""
        self.task: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._disconnected = False

    async def send(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.written_after_end |= self.closed or self.opened
        self.status, self.headers, self.body = status, _text(headers), body
        self.closed = True

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.written_after_end |= self.closed or self.opened
        self.status, self.headers = 200, _text(headers)
        self.opened = True
        await asyncio.sleep(0)

    async def write(self, chunk: bytes) -> None:
        self.written_after_end |= self.closed
        self.chunks.append(chunk)
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.written_after_end |= self.closed
        self.closed = True

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self._disconnected:
            callback()
        else:
            self._callbacks.append(callback)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def disconnect(self) -> None:
        if self.closed or self._disconnected:
            return
        self._disconnected = True
        for callback in self._callbacks:
            callback()

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def events(self) -> list[SseEvent]:
        """The events with data."""
        return [each for each in SseParser().feed(b"".join(self.chunks)) if each.data]

    @property
    def messages(self) -> list[Json]:
        return [json.loads(each.data) for each in self.events]

    @property
    def final_message(self) -> Json:
        """The final response, whether it was sent as JSON or as the last event."""
        return self.messages[-1] if self.opened else self.json

    def sent(self, method: str) -> list[Json]:
        return [each for each in self.messages if each.get("method") == method]


def _text(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}
