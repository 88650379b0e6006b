"""`Server-Timing`: where a request's time went, for a client that asks with `X-Server-Timing`."""

from time import perf_counter_ns
from typing import Final

from gateway.contract import McpHttpRequest, Record
from gateway.protocol.answer import Header
from gateway.telemetry.span import stage_times

ASKED: Final = "x-server-timing"


def timing(inbound: McpHttpRequest, record: Record | None) -> tuple[Header, ...]:
    """One entry for each stage and one for the whole, in milliseconds; nothing unless asked."""
    if ASKED not in inbound.headers or record is None:
        return ()
    now = perf_counter_ns()
    entries = [f"{stage};dur={ns / 1e6:.3f}" for stage, ns in stage_times(record, now)]
    entries.append(f"total;dur={(now - record.started) / 1e6:.3f}")
    return ((b"server-timing", ", ".join(entries).encode()),)
