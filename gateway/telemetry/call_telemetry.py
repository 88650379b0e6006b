"""Emits the log line and the spans of a finished call. `gateway.wiring.telemetry` connects it to the trace stage."""

import time
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii as _encode_string
from time import perf_counter_ns
from typing import Final

from gateway.contract import Call, Result
from gateway.telemetry.log import format_timestamp
from gateway.telemetry.span import Span, build_spans, call_target
from gateway.telemetry.work_span import FinishedWork, build_work_span

SLOW_SECONDS: Final = 1.0
"""Default duration from which a call counts as slow."""

_LONG_LIVED_METHOD: Final = "subscriptions/listen"
"""Lasts as long as the client stays connected, so a long duration does not count as slow."""

SpanSink = Callable[[Sequence[Span]], None]


class SpanRecorder:
    """Sends the spans of finished calls to each of `sinks`.

    Failed, denied and slow calls are always recorded; of the others, only the sampled ones. Arguments and results are
    recorded only for the tenants in `content_tenants`.
    """

    def __init__(
        self,
        sinks: Sequence[SpanSink] = (),
        *,
        slow_seconds: float = SLOW_SECONDS,
        content_tenants: frozenset[str] = frozenset(),
    ) -> None:
        self._sinks = sinks
        self._slow_ns = int(slow_seconds * 1e9)
        self._content_tenants = content_tenants

    def record(self, call: Call, result: Result | None, exc: BaseException | None) -> None:
        record, ended = call.record, perf_counter_ns()
        position = record.position
        if position is None:
            return
        is_slow = ended - record.started >= self._slow_ns and call.method != _LONG_LIVED_METHOD
        if not position.sampled and not is_slow and record.outcome == "ok" and exc is None:
            return
        offset = time.time_ns() - ended
        self._send(
            build_spans(call, exc, ended, offset, result, include_content=call.caller.tenant in self._content_tenants)
        )

    def record_work(self, work: FinishedWork) -> None:
        """Record a work span of a backend, by the same rules as a call."""
        is_slow = work.ended - work.started >= self._slow_ns
        if work.position.sampled or is_slow or work.exc is not None:
            self._send([build_work_span(work, time.time_ns() - perf_counter_ns())])

    def _send(self, spans: Sequence[Span]) -> None:
        for sink in self._sinks:
            sink(spans)


class CallLog:
    """Writes one line per call, as JSON or as text for a terminal."""

    def __init__(self, write: Callable[[str], None], format: str) -> None:
        self._write = write
        self._format_line = _json_line if format == "json" else _text_line

    def record(self, call: Call, result: Result | None = None, exc: BaseException | None = None) -> None:
        self._write(self._format_line(call))


def _json_line(call: Call) -> str:
    """Format by hand, which takes half the time of a JSON encoder. Client text goes through the string encoder."""
    record, caller = call.record, call.caller
    position = record.position
    trace_id, span_id = (position.trace_id, position.span_id) if position is not None else ("", "")
    return (
        f'{{"time":"{format_timestamp(time.time())}","level":"info","message":"call","method":{_encode_string(call.method)},'
        f'"target":{_encode_string(call_target(call))},"outcome":"{record.outcome}","decision":"{record.decision}",'
        f'"ms":{(perf_counter_ns() - record.started) / 1e6:.3f},"tenant":{_encode_string(caller.tenant)},'
        f'"principal":{_encode_string(caller.principal)},"protocol":"{call.client.version}",'
        f'"correlation_id":{_encode_string(call.id)},"trace_id":"{trace_id}","span_id":"{span_id}"}}'
    )


def _text_line(call: Call) -> str:
    milliseconds = (perf_counter_ns() - call.record.started) / 1e6
    target = ascii(f"{call.method} {call_target(call)}".rstrip())[1:-1]
    principal = ascii(call.caller.principal)[1:-1]
    return (
        f"{time.strftime('%H:%M:%S')} {call.record.outcome:<7} {milliseconds:8.1f} ms  {target}  {principal}  {call.id}"
    )
