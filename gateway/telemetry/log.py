"""What the process says: JSON lines, one for each call; control characters escaped, secrets never in them."""

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

MAX_FIELD: Final = 1024
_SECRET: Final = re.compile(
    r"(gth_[a-z0-9]{4})[A-Za-z0-9_-]+"  # our keys
    r"|(bearer\s+)\S+"
    r"|(basic\s+)[A-Za-z0-9+/]{8,}=*"
    r"|(eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"  # any JWT
    r"|(://[^/\s:@]*:)[^@\s/]+(?=@)",  # a password in an address
    re.IGNORECASE,
)


IDS: Final = ("correlation_id", "trace_id", "span_id")
"""What ties a log record to its call."""


class LogLines:
    """Lines for a stream, written in groups: a system call for each call would cost more than the call's span."""

    def __init__(self, stream: TextIO, later: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        self._stream = stream
        self._later = later
        self._pending: list[str] = []

    def put(self, line: str) -> None:
        self._pending.append(line)
        if self._later is None or len(self._pending) > 500:
            self.flush()
        elif len(self._pending) == 1:
            self._later(0.05, self.flush)

    def flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._stream.write("\n".join(pending) + "\n")
            self._stream.flush()


def as_line(fields: dict[str, Any]) -> str:
    """One JSON object in ASCII: nothing in it can end the line or colour a terminal."""
    return _encode(fields)


_encode: Final = json.JSONEncoder(default=str, separators=(",", ":")).encode


class JsonFormatter(logging.Formatter):
    """A log record as one JSON object, with its correlation id and, on failure, the cause."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage()),
        }
        fields |= {name: value for name in IDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            fields["cause"] = clean(self.formatException(record.exc_info), 16_384)
        return as_line(fields)


class TextFormatter(logging.Formatter):
    """For a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{time.strftime('%H:%M:%S')} {record.levelname.lower():<7} {_printable(clean(record.getMessage()))}"
        if record.exc_info:
            cause = clean(self.formatException(record.exc_info), 16_384)
            text += "\n" + "\n".join(_printable(line) for line in cause.splitlines())
        return text


def set_up(level: str, form: str) -> None:
    """Everything the process logs goes to standard error in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("gatehouse").setLevel(level.upper())
    # They log tokens and session ids at lower levels.
    for noisy in ("authlib", "httpx", "mcp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def clean(text: str, length: int = MAX_FIELD) -> str:
    """Bounded, and without anything that looks like a credential."""
    return _SECRET.sub(lambda found: found[found.lastindex or 0] + "…", text[:length])


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def stamp(at: float) -> str:
    """In UTC, to the millisecond."""
    global _second
    begun, text = _second
    if not 0.0 <= at - begun < 1.0:
        begun = float(int(at))
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(begun))
        _second = (begun, text)
    return f"{text}.{int((at - begun) * 1000):03d}Z"


_second = (-1.0, "")
"""The last second that was written out: nearly always the next one's too."""
