"""The path: stages folded once, at start, into one handler."""

from collections.abc import Awaitable, Sequence
from time import perf_counter_ns

from gateway.contract import Call, Handler, Result, Stage


def compose(stages: Sequence[tuple[str, Stage]], end: Handler, name: str = "end") -> Handler:
    """Fold the stages, first outermost, around `end`. A call's record keeps their names, and when each was entered."""

    def last(call: Call) -> Awaitable[Result]:
        call.record.marks.append(perf_counter_ns())
        return end(call)

    names = (*(stage_name for stage_name, _ in stages), name)
    handler: Handler = last
    for _, stage in reversed(stages):
        handler = _seat(stage, handler)

    def begin(call: Call) -> Awaitable[Result]:
        call.record.stages = names
        return handler(call)

    return begin


def _seat(stage: Stage, call_next: Handler) -> Handler:
    # Not a coroutine of its own: it hands on the stage's, one frame less for each stage.
    def run(call: Call) -> Awaitable[Result]:
        call.record.marks.append(perf_counter_ns())
        return stage(call, call_next)

    return run
