"""Audit records as OTLP log records: what a collector keeps of them can be held against the chain they come from."""

from collections.abc import Mapping
from typing import Any, Final

from gateway.telemetry.otlp import LogRecord

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
