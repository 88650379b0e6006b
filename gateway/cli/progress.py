"""Progress bar for commands that take longer than a second; prints nothing unless standard error is a terminal."""

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

DELAY_SECONDS: Final = 1.0
"""Seconds before the bar appears."""


class ProgressBar:
    """A progress bar on standard error, removed when the block ends."""

    def __init__(self, label: str, total: float | None = None, console: Console | None = None) -> None:
        console = console or Console(file=sys.stderr)
        self._label = label
        self._bar = _DelayedProgress(console) if console.is_terminal else None
        self._task = self._bar.add_task(label, total=total) if self._bar is not None else None

    def __enter__(self) -> "ProgressBar":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, label: str) -> None:
        """Complete the current part and start the one named `label`."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, description=f"{self._label}: {label}")

    def update(self, done: float, total: float | None, label: str = "") -> None:
        """Show the progress that a tool reports."""
        if self._bar is not None and self._task is not None:
            description = f"{self._label}: {label}" if label else self._label
            self._bar.update(self._task, completed=done, total=total, description=description)


class _DelayedProgress(Progress):
    def __init__(self, console: Console) -> None:
        self._started = time.monotonic()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console, transient=True)

    def get_renderables(self) -> Iterable[RenderableType]:
        if time.monotonic() >= self._started + DELAY_SECONDS:
            yield from super().get_renderables()
