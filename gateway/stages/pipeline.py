"""Composes stages into one handler; used once at start by `gateway.wiring.call_path`."""

from collections.abc import Awaitable, Sequence
from time import perf_counter_ns

from gateway.contract import Call, Handler, Result, Stage


def compose(stages: Sequence[tuple[str, Stage]], end: Handler, name: str = "end") -> Handler:
    """Compose the stages around `end`, the first outermost. `Record` keeps their names and the time of each entry."""

    def last(call: Call) -> Awaitable[Result]:
        call.record.entered_at.append(perf_counter_ns())
        return end(call)

    names = (*(stage_name for stage_name, _ in stages), name)
    handler: Handler = last
    for _, stage in reversed(stages):
        handler = _enter(stage, handler)

    def begin(call: Call) -> Awaitable[Result]:
        call.record.stages = names
        return handler(call)

    return begin


def _enter(stage: Stage, call_next: Handler) -> Handler:
    # A plain function that returns the stage's awaitable: one frame less for each stage.
    def run(call: Call) -> Awaitable[Result]:
        call.record.entered_at.append(perf_counter_ns())
        return stage(call, call_next)

    return run
