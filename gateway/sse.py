"""Server-sent events as bytes: frames for the north door, an incremental parser for the south one."""

import re
from dataclasses import dataclass
from typing import Final

COMMENT: Final = b": keep-alive\n\n"

DEFAULT_LIMIT: Final = 8 * 1024 * 1024


def event(data: bytes, id: str | None = None, retry: int | None = None, name: str = "message") -> bytes:
    """One event. Line ends inside `data` become data lines of their own, which a JSON reader takes for blanks."""
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_LINE_END.split(data))
    return b"%sevent: %s\ndata: %s\n\n" % (_reconnection(id, retry), _line(name), data)


def priming(id: str, retry: int | None = None) -> bytes:
    """An event without data: gives the client an id to resume from before there is anything to say."""
    return b"%sdata: \n\n" % _reconnection(id, retry)


def _reconnection(id: str | None, retry: int | None) -> bytes:
    fields = b"" if id is None else b"id: %s\n" % _line(id)
    return fields if retry is None else b"%sretry: %d\n" % (fields, retry)


def _line(value: str) -> bytes:
    if any(end in value for end in "\r\n\0"):
        raise ValueError("A field of an event must be one line without NUL.")
    return value.encode()


class EventTooLarge(Exception):
    """An event outgrew the limit; the stream cannot be read any further."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event of a stream."""

    data: bytes
    """As it came: whether it is UTF-8 is for the JSON reader to say."""
    name: str = "message"
    id: str = ""
    """The last id the stream gave, with this event or before it; empty when none."""


class SseParser:
    """Bytes in, events out, in time linear in the bytes however they are cut. Never gives out an unfinished event."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.last_id = ""
        self.retry: int | None = None
        """Milliseconds to wait before reconnecting, as the server last asked."""
        self._limit = limit
        self._line = bytearray()
        self._after_cr = False
        self._at_start = True
        self._begin()

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes. Raises `Oversize` when one is longer than the limit."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        events: list[SseEvent] = []
        for part in ended:
            self._grow(part)
            line = bytes(self._line)
            self._line.clear()
            self._take(line, events)
        self._grow(rest)
        return events

    def _grow(self, part: bytes) -> None:
        self._line += part
        if self._size + len(self._line) > self._limit:
            raise EventTooLarge(f"An event is longer than {self._limit} bytes.")

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line:
            self._field(line)
            return
        if self._data:
            events.append(SseEvent(b"\n".join(self._data), self._name or "message", self.last_id))
        self._begin()

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._size += len(value) + 1
            case b"event":
                self._name = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self.last_id = value.decode(errors="replace")
            # A number of more digits asks for a wait of years: no server means it.
            case b"retry" if value.isdigit() and len(value) <= 9:
                self.retry = int(value)
            case _:
                pass

    def _begin(self) -> None:
        self._data: list[bytes] = []
        self._name = ""
        self._size = 0


_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
