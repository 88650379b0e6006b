"""What is told of every call that ends: a log line, and a span record when it is worth keeping."""

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _text
from time import perf_counter_ns
from typing import Any, Final

from gateway.contract import Call
from gateway.telemetry.log import clean, stamp

SLOW_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """One call as a span: plain values, turned into an exporter's form only when exported."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    started: float
    duration: float
    attributes: dict[str, Any]
    stages: tuple[tuple[str, int], ...]


class Spans:
    """Errors, denials and slow calls are always kept, of the rest a share; the oldest make room."""

    def __init__(self, share: float = 0.01, kept: int = 2048) -> None:
        self._share = share
        self.kept: deque[Span] = deque(maxlen=kept)

    def told(self, call: Call) -> None:
        record = call.record
        duration = (perf_counter_ns() - record.started) / 1e9
        if record.outcome == "ok" and duration < SLOW_SECONDS and random.random() >= self._share:  # noqa: S311
            return
        parent = call.trace.get("traceparent", "")
        target = _target(call) if call.leads_to else ""
        attributes: dict[str, Any] = {
            "mcp.method.name": call.method,
            "mcp.protocol.version": call.client.version,
            "gatehouse.tenant": call.caller.tenant,
            "gatehouse.correlation_id": call.id,
            "gatehouse.decision": record.decision,
            "gatehouse.outcome": record.outcome,
        }
        if call.method == "tools/call":
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
        self.kept.append(
            Span(
                name=f"{call.method} {target}".rstrip(),
                trace_id=parent[3:35] or f"{random.getrandbits(128):032x}",
                span_id=f"{random.getrandbits(64):016x}",
                parent_id=parent[36:52],
                started=time.time() - duration,
                duration=duration,
                attributes=attributes,
                stages=tuple(record.marks),
            )
        )


class CallLines:
    """One line for each call, as JSON or for a terminal."""

    def __init__(self, put: Callable[[str], None], form: str) -> None:
        self._put = put
        self._line = _json_line if form == "json" else _text_line

    def told(self, call: Call) -> None:
        self._put(self._line(call))


def _target(call: Call) -> str:
    route = call.leads_to
    if route is not None and call.method == "tools/call":
        return route.canonical
    # A resource's URI is the client's own text, also when it leads somewhere.
    return clean(route.canonical if route else str(call.params.get("name") or call.params.get("uri") or ""), 256)


def _json_line(call: Call) -> str:
    """Written by hand, which takes half the time; whatever a client chose goes through the encoder."""
    record, caller = call.record, call.caller
    return (
        f'{{"time":"{stamp(time.time())}","level":"info","message":"call","method":{_text(call.method)},'
        f'"target":{_text(_target(call))},"outcome":"{record.outcome}","decision":"{record.decision}",'
        f'"ms":{(perf_counter_ns() - record.started) / 1e6:.3f},"tenant":{_text(caller.tenant)},'
        f'"principal":{_text(caller.principal)},"protocol":"{call.client.version}",'
        f'"correlation_id":{_text(call.id)},"trace_id":{_text(call.trace.get("traceparent", "")[3:35])}}}'
    )


def _text_line(call: Call) -> str:
    milliseconds = (perf_counter_ns() - call.record.started) / 1e6
    what = ascii(f"{call.method} {_target(call)}".rstrip())[1:-1]
    who = ascii(call.caller.principal)[1:-1]
    return f"{time.strftime('%H:%M:%S')} {call.record.outcome:<7} {milliseconds:8.1f} ms  {what}  {who}  {call.id}"
