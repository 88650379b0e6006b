"""Log records for export: of Python's logging, of finished calls and of audit records. Plain values, as in `span.py`.

An exported audit record keeps its sequence number and hash, so it can be verified against the audit chain.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from gateway.contract import Call, Result
from gateway.telemetry.log import clean
from gateway.telemetry.span import call_target

_EXPORT_LOGGERS: Final = frozenset(("gatehouse.telemetry", "opentelemetry", "requests", "urllib3", "grpc"))
"""Loggers of the export itself. To export their records would loop."""


class LogRecord(Struct, frozen=True):
    """One log record. `at` is Unix time in nanoseconds."""

    at: int
    level: str
    body: str
    attributes: Sequence[tuple[str, Any]] = ()
    trace_id: str = ""
    span_id: str = ""


class ExportFailed(Exception):
    """The collector did not accept log records within the timeout. The message is the reason."""


class ExportHandler(logging.Handler):
    """Exports what the process logs, except the records of the export itself."""

    def __init__(self, emit: Callable[[LogRecord], None]) -> None:
        super().__init__()
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        if record.name in _EXPORT_LOGGERS or record.name.partition(".")[0] in _EXPORT_LOGGERS:
            return
        attributes: list[tuple[str, Any]] = [("logger", record.name)]
        if (correlation_id := getattr(record, "correlation_id", None)) is not None:
            attributes.append(("gatehouse.correlation_id", correlation_id))
        if record.exc_info and record.exc_info[0] is not None:
            attributes.append(("exception.type", record.exc_info[0].__name__))
            attributes.append(
                ("exception.stacktrace", clean(_exception_formatter.formatException(record.exc_info), 16_384))
            )
        ids = (getattr(record, "trace_id", ""), getattr(record, "span_id", ""))
        at = int(record.created * 1e9)
        self._emit(LogRecord(at, record.levelname.lower(), clean(record.getMessage()), attributes, *ids))


_exception_formatter = logging.Formatter()


def call_record(call: Call, result: Result | None = None, exc: BaseException | None = None) -> LogRecord:
    """Return the log record of a finished call."""
    record, caller = call.record, call.caller
    attributes: list[tuple[str, Any]] = [
        ("mcp.method.name", call.method),
        ("gatehouse.target", call_target(call)),
        ("gatehouse.tenant", caller.tenant),
        ("gatehouse.principal", caller.principal),
        ("gatehouse.outcome", record.outcome),
        ("gatehouse.policy.decision", record.decision),
        ("gatehouse.correlation_id", call.id),
    ]
    position = record.position
    ids = (position.trace_id, position.span_id) if position is not None else ("", "")
    return LogRecord(time.time_ns(), "info", f"{call.method} {call_target(call)}".rstrip(), attributes, *ids)


EVENT: Final = "gatehouse.audit"
_PREFIX: Final = "gatehouse.audit."

_SHARED_ATTRIBUTES: Final = {
    "tenant": "gatehouse.tenant",
    "principal": "gatehouse.principal",
    "correlation_id": "gatehouse.correlation_id",
    "method": "mcp.method.name",
    "target": "gatehouse.target",
    "decision": "gatehouse.policy.decision",
    "outcome": "gatehouse.outcome",
}
"""Columns that are exported under the same attribute names as in the log record of a call."""


def audit_record(record: Mapping[str, Any]) -> LogRecord:
    """Return the log record of a stored audit record, with its sequence number and hash. Empty fields are omitted."""
    attributes: list[tuple[str, Any]] = [("event.name", EVENT)]
    for name, value in record.items():
        if name not in ("at", "trace_id") and value not in (None, ""):
            attributes.append((_SHARED_ATTRIBUTES.get(name) or f"{_PREFIX}{name}", value))
    level = "warning" if record["decision"] == "deny" else "info"
    body = f"{record['method']} {record['target']}".rstrip()
    return LogRecord(int(record["at"] * 1e9), level, body, attributes, record["trace_id"])
