"""What is told of every call that ends: a log line, and its spans when it is worth keeping."""

import time
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii as _text
from time import perf_counter_ns
from typing import Final

from gateway.contract import Call, Result
from gateway.telemetry.log import stamp
from gateway.telemetry.span import Span, spans_of, target
from gateway.telemetry.work_span import FinishedWork, piece_span

SLOW_SECONDS: Final = 1.0

_LONG: Final = "subscriptions/listen"
"""It lasts as long as its client likes, which says nothing of it."""

Keep = Callable[[Sequence[Span]], None]


class SpanRecorder:
    """Errors, denials and slow calls are always kept, and the calls that were chosen at their start.

    What is kept is told to every one of `keepers`, and nothing of it stays here. Arguments and results are told only
    of the tenants in `open`.
    """

    def __init__(
        self,
        keepers: Sequence[Keep] = (),
        *,
        slow: float = SLOW_SECONDS,
        open: frozenset[str] = frozenset(),
    ) -> None:
        self._keepers = keepers
        self._slow = int(slow * 1e9)
        self._open = open

    def told(self, call: Call, result: Result | None, exc: BaseException | None) -> None:
        record, ended = call.record, perf_counter_ns()
        place = record.position
        if place is None:
            return
        slow = ended - record.started >= self._slow and call.method != _LONG
        if not place.sampled and not slow and record.outcome == "ok" and exc is None:
            return
        offset = time.time_ns() - ended
        self._keep(spans_of(call, exc, ended, offset, result, open=call.caller.tenant in self._open))

    def worked(self, done: FinishedWork) -> None:
        """A piece of a module's work is kept by the same rule as a call."""
        slow = done.ended - done.started >= self._slow
        if done.place.sampled or slow or done.exc is not None:
            self._keep([piece_span(done, time.time_ns() - perf_counter_ns())])

    def _keep(self, spans: Sequence[Span]) -> None:
        for keep in self._keepers:
            keep(spans)


class CallLog:
    """One line for each call, as JSON or for a terminal."""

    def __init__(self, put: Callable[[str], None], form: str) -> None:
        self._put = put
        self._line = _json_line if form == "json" else _text_line

    def told(self, call: Call, result: Result | None = None, exc: BaseException | None = None) -> None:
        self._put(self._line(call))


def _json_line(call: Call) -> str:
    """Written by hand, which takes half the time; whatever a client chose goes through the encoder."""
    record, caller = call.record, call.caller
    place = record.position
    trace_id, span_id = (place.trace_id, place.span_id) if place is not None else ("", "")
    return (
        f'{{"time":"{stamp(time.time())}","level":"info","message":"call","method":{_text(call.method)},'
        f'"target":{_text(target(call))},"outcome":"{record.outcome}","decision":"{record.decision}",'
        f'"ms":{(perf_counter_ns() - record.started) / 1e6:.3f},"tenant":{_text(caller.tenant)},'
        f'"principal":{_text(caller.principal)},"protocol":"{call.client.version}",'
        f'"correlation_id":{_text(call.id)},"trace_id":"{trace_id}","span_id":"{span_id}"}}'
    )


def _text_line(call: Call) -> str:
    milliseconds = (perf_counter_ns() - call.record.started) / 1e6
    what = ascii(f"{call.method} {target(call)}".rstrip())[1:-1]
    who = ascii(call.caller.principal)[1:-1]
    return f"{time.strftime('%H:%M:%S')} {call.record.outcome:<7} {milliseconds:8.1f} ms  {what}  {who}  {call.id}"
