"""The path: stages folded once, at start, into one handler."""

from collections.abc import Sequence

from gateway.contract import Call, Handler, Result, Stage


def compose(stages: Sequence[tuple[str, Stage]], end: Handler, name: str = "end") -> Handler:
    """Fold the stages, first outermost, around `end`. Each notes its name and time in the call's record."""

    async def last(call: Call) -> Result:
        call.record.enter(name)
        return await end(call)

    handler: Handler = last
    for stage_name, stage in reversed(stages):
        handler = _seat(stage_name, stage, handler)
    return handler


def _seat(name: str, stage: Stage, call_next: Handler) -> Handler:
    async def run(call: Call) -> Result:
        call.record.enter(name)
        return await stage(call, call_next)

    return run
