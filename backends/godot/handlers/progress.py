"""Forwards the engine's progress output to the client."""

import re
from typing import Final

from backends.godot.engine.process import LineListener
from backends.godot.tool import ToolCall

_PERCENT: Final = re.compile(r"^\[\s*(\d{1,3})% \]\s*(?P<what>.*)$")


def progress_listener(call: ToolCall) -> LineListener:
    """Return a listener that reports percentages in the engine's output as progress.

    Each phase of the engine counts from 0 to 100 again; it is offset by 100 so that progress always increases.
    """
    phase = last = 0.0

    async def on_line(line: str) -> None:
        nonlocal phase, last
        found = _PERCENT.match(line)
        if found is None:
            return
        progress = phase + float(found[1])
        if progress < last:
            phase += 100
            progress += 100
        if progress > last:
            last = progress
            await call.report_progress(progress, None, found["what"])

    return on_line
