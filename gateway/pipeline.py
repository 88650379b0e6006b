"""The path: stages folded once, at start, into one handler."""

from collections.abc import Awaitable, Sequence
from time import perf_counter_ns

from gateway.contract import Call, Handler, Result, Stage


def compose(stages: Sequence[tuple[str, Stage]], end: Handler, name: str = "end") -> Handler:
    """Fold the stages, first outermost, around `end`. Each notes its name and time in the call's record."""

    def last(call: Call) -> Awaitable[Result]:
        call.record.marks.append((name, perf_counter_ns()))
        return end(call)

    handler: Handler = last
    for stage_name, stage in reversed(stages):
        handler = _seat(stage_name, stage, handler)
    return handler


def _seat(name: str, stage: Stage, call_next: Handler) -> Handler:
    # Not a coroutine of its own: it hands on the stage's, one frame less for each stage.
    def run(call: Call) -> Awaitable[Result]:
        call.record.marks.append((name, perf_counter_ns()))
        return stage(call, call_next)

    return run
