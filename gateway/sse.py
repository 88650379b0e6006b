"""Server-sent events: encodes events for clients, and parses the event streams of upstream servers incrementally."""

import re
from dataclasses import dataclass
from typing import Final

KEEP_ALIVE_COMMENT: Final = b": keep-alive\n\n"

DEFAULT_MAX_EVENT_BYTES: Final = 8 * 1024 * 1024


def event(data: bytes, id: str | None = None, retry: int | None = None, name: str = "message") -> bytes:
    """Encode one event. Line breaks in `data` become separate data lines, which JSON parsers read as white space."""
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_LINE_BREAK.split(data))
    return b"%sevent: %s\ndata: %s\n\n" % (_reconnection(id, retry), _line(name), data)


def priming_event(id: str, retry: int | None = None) -> bytes:
    """Encode an event without data, which gives the client an id to resume from before the first message."""
    return b"%sdata: \n\n" % _reconnection(id, retry)


def _reconnection(id: str | None, retry: int | None) -> bytes:
    fields = b"" if id is None else b"id: %s\n" % _line(id)
    return fields if retry is None else b"%sretry: %d\n" % (fields, retry)


def _line(value: str) -> bytes:
    if any(end in value for end in "\r\n\0"):
        raise ValueError("A field of an event must be one line without NUL.")
    return value.encode()


class EventTooLarge(Exception):
    """An event exceeds the size limit; the stream cannot be parsed further."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event of a stream."""

    data: bytes
    """The raw bytes, not checked for UTF-8."""
    name: str = "message"
    id: str = ""
    """The last event id that the stream sent, with this event or before it; empty if none."""


class SseParser:
    """Incremental parser: takes chunks of any size, returns complete events; linear in the number of bytes."""

    def __init__(self, limit: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        self.last_id = ""
        self.retry: int | None = None
        """The reconnection delay in milliseconds that the server last sent."""
        self._limit = limit
        self._line = bytearray()
        self._after_cr = False
        self._at_start = True
        self._reset()

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes. Raises `EventTooLarge` if one exceeds the limit."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        *ended, rest = _LINE_BREAK.split(chunk)
        events: list[SseEvent] = []
        for part in ended:
            self._append_to_line(part)
            line = bytes(self._line)
            self._line.clear()
            self._process_line(line, events)
        self._append_to_line(rest)
        return events

    def _append_to_line(self, part: bytes) -> None:
        self._line += part
        if self._size + len(self._line) > self._limit:
            raise EventTooLarge(f"An event is longer than {self._limit} bytes.")

    def _process_line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line:
            self._process_field(line)
            return
        if self._data:
            events.append(SseEvent(b"\n".join(self._data), self._name or "message", self.last_id))
        self._reset()

    def _process_field(self, line: bytes) -> None:
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
            # Longer numbers would mean a delay of weeks or more: ignored.
            case b"retry" if value.isdigit() and len(value) <= 9:
                self.retry = int(value)
            case _:
                pass

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._name = ""
        self._size = 0


_LINE_BREAK: Final = re.compile(rb"\r\n|\r|\n")
