"""Log records for a collector, beside the lines on standard error.

Audit records as OTLP log records: what a collector keeps of them can be held against the chain they come from.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.contract import Call, Result
from gateway.telemetry.log import clean
from gateway.telemetry.otlp import LogRecord
from gateway.telemetry.span import target


class OtlpHandler(logging.Handler):
    """What the process logs. The exporter's own records are left out: they would feed on themselves."""

    def __init__(self, put: Callable[[LogRecord], None]) -> None:
        super().__init__()
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "gatehouse.telemetry":
            return
        attributes: list[tuple[str, Any]] = [("logger", record.name)]
        if (correlation_id := getattr(record, "correlation_id", None)) is not None:
            attributes.append(("gatehouse.correlation_id", correlation_id))
        if record.exc_info and record.exc_info[0] is not None:
            attributes.append(("exception.type", record.exc_info[0].__name__))
            attributes.append(("exception.stacktrace", clean(_cause.formatException(record.exc_info), 16_384)))
        ids = (getattr(record, "trace_id", ""), getattr(record, "span_id", ""))
        at = int(record.created * 1e9)
        self._put(LogRecord(at, record.levelname.lower(), clean(record.getMessage()), attributes, *ids))


_cause = logging.Formatter()


def call_record(call: Call, result: Result | None = None, exc: BaseException | None = None) -> LogRecord:
    """The line of a call that ended."""
    record, caller = call.record, call.caller
    attributes: list[tuple[str, Any]] = [
        ("mcp.method.name", call.method),
        ("gatehouse.target", target(call)),
        ("gatehouse.tenant", caller.tenant),
        ("gatehouse.principal", caller.principal),
        ("gatehouse.outcome", record.outcome),
        ("gatehouse.policy.decision", record.decision),
        ("gatehouse.correlation_id", call.id),
    ]
    place = record.position
    ids = (place.trace_id, place.span_id) if place is not None else ("", "")
    return LogRecord(time.time_ns(), "info", f"{call.method} {target(call)}".rstrip(), attributes, *ids)


EVENT: Final = "gatehouse.audit"

_PREFIX: Final = "gatehouse.audit."

_PLAIN: Final = {
    "tenant": "gatehouse.tenant",
    "principal": "gatehouse.principal",
    "correlation_id": "gatehouse.correlation_id",
    "method": "mcp.method.name",
    "target": "gatehouse.target",
    "decision": "gatehouse.policy.decision",
    "outcome": "gatehouse.outcome",
}

"""What the log line of a call has too, under the same name."""


def audit_record(kept: Mapping[str, Any]) -> LogRecord:
    """One record as it is kept, its place in its chain and its hash included; what it does not say is left out."""
    attributes: list[tuple[str, Any]] = [("event.name", EVENT)]
    for name, value in kept.items():
        if name not in ("at", "trace_id") and value not in (None, ""):
            attributes.append((_PLAIN.get(name) or f"{_PREFIX}{name}", value))
    level = "warning" if kept["decision"] == "deny" else "info"
    body = f"{kept['method']} {kept['target']}".rstrip()
    return LogRecord(int(kept["at"] * 1e9), level, body, attributes, kept["trace_id"])
