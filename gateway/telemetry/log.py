"""Logging of the process: JSON or text lines on standard error, with control characters escaped and secrets removed."""

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, TextIO

MAX_FIELD: Final = 1024
_OUTPUT_BYTES: Final = 5_000_000
_SECRET: Final = re.compile(
    r"(gth_[a-z0-9]{4})[A-Za-z0-9_-]+"  # Gatehouse API keys
    r"|(bearer\s+)\S+"
    r"|(basic\s+)[A-Za-z0-9+/]{8,}=*"
    r"|(eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"  # any JWT
    r"|(://[^/\s:@]*:)[^@\s/]+(?=@)",  # a password in a URL
    re.IGNORECASE,
)


ID_FIELDS: Final = ("correlation_id", "trace_id", "span_id")
"""Fields that link a log record to its call."""


class LogLines:
    """Buffers lines for a stream and writes them in batches, because a system call per line is expensive.

    Without `call_later`, each line is written immediately.
    """

    def __init__(self, stream: TextIO, call_later: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        self._stream = stream
        self._call_later = call_later
        self._pending: list[str] = []

    def put(self, line: str) -> None:
        self._pending.append(line)
        if self._call_later is None or len(self._pending) > 500:
            self.flush()
        elif len(self._pending) == 1:
            self._call_later(0.05, self.flush)

    def flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._stream.write("\n".join(pending) + "\n")
            self._stream.flush()


def encode_line(fields: dict[str, Any]) -> str:
    """Encode as one ASCII JSON object, which cannot contain line breaks or terminal control codes."""
    return _encode(fields)


_encode: Final = json.JSONEncoder(default=str, separators=(",", ":")).encode


class JsonFormatter(logging.Formatter):
    """Formats a log record as one JSON object, with the ids of its call and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": format_timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage()),
        }
        fields |= {name: value for name in ID_FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            fields["cause"] = clean(self.formatException(record.exc_info), 16_384)
        return encode_line(fields)


class TextFormatter(logging.Formatter):
    """Formats a log record as text for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{time.strftime('%H:%M:%S')} {record.levelname.lower():<7} {_printable(clean(record.getMessage()))}"
        if record.exc_info:
            cause = clean(self.formatException(record.exc_info), 16_384)
            text += "\n" + "\n".join(_printable(line) for line in cause.splitlines())
        return text


def configure_logging(level: str, format: str, backend_output: Path | None = None) -> None:
    """Send all logging of the process to standard error, as JSON or text.

    With `backend_output`, the standard error of child processes goes to that file instead.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("gatehouse").setLevel(level.upper())
    if backend_output is not None:
        backend_output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = RotatingFileHandler(backend_output, maxBytes=_OUTPUT_BYTES, backupCount=1, encoding="utf-8", delay=True)
        file.setFormatter(TextFormatter())
        output = logging.getLogger("gatehouse.upstream.output")
        output.handlers[:] = [file]
        output.propagate = False
    # These libraries log tokens and session ids at lower levels.
    for noisy in ("authlib", "httpx", "mcp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def clean(text: str, length: int = MAX_FIELD) -> str:
    """Truncate the text and redact everything that looks like a credential."""
    return _SECRET.sub(lambda found: found[found.lastindex or 0] + "…", text[:length])


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def format_timestamp(timestamp: float) -> str:
    """Format a Unix time in UTC with milliseconds."""
    global _cached_second
    second, text = _cached_second
    if not 0.0 <= timestamp - second < 1.0:
        second = float(int(timestamp))
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _cached_second = (second, text)
    return f"{text}.{int((timestamp - second) * 1000):03d}Z"


_cached_second = (-1.0, "")
"""The last second formatted. Most log lines fall into the same second as the line before."""
