"""A bar on the terminal for what takes longer than a second; where nobody looks, nothing."""

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

PATIENCE: Final = 1.0
"""Seconds before it appears: what is over by then needs no bar."""


class ProgressBar:
    """On standard error, so that what is printed stays clean; gone when the block ends."""

    def __init__(self, words: str, total: float | None = None, console: Console | None = None) -> None:
        console = console or Console(file=sys.stderr)
        self._words = words
        self._bar = _Late(console) if console.is_terminal else None
        self._task = self._bar.add_task(words, total=total) if self._bar is not None else None

    def __enter__(self) -> "ProgressBar":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, words: str) -> None:
        """One part is done and the next begins."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, description=f"{self._words}: {words}")

    def at(self, done: float, total: float | None, words: str = "") -> None:
        """As far as somebody else tells us."""
        if self._bar is not None and self._task is not None:
            said = f"{self._words}: {words}" if words else self._words
            self._bar.update(self._task, completed=done, total=total, description=said)


class _Late(Progress):
    def __init__(self, console: Console) -> None:
        self._began = time.monotonic()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console, transient=True)

    def get_renderables(self) -> Iterable[RenderableType]:
        if time.monotonic() >= self._began + PATIENCE:
            yield from super().get_renderables()
