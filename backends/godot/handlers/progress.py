"""How far the engine says it is."""

import re
from typing import Final

from backends.godot.engine.process import Heard
from backends.godot.tool import Job

_PERCENT: Final = re.compile(r"^\[\s*(\d{1,3})% \]\s*(?P<what>.*)$")


def percent(job: Job) -> Heard:
    """Tells the client each time the engine has come further; each of its phases begins anew at the next hundred."""
    phase = last = 0.0

    async def heard(line: str) -> None:
        nonlocal phase, last
        found = _PERCENT.match(line)
        if found is None:
            return
        now = phase + float(found[1])
        if now < last:
            phase += 100
            now += 100
        if now > last:
            last = now
            await job.report(now, None, found["what"])

    return heard
