"""How a demo looks on a terminal: what is done, and below it what came of it, one line each."""

import time
from typing import Final

from rich.console import Console
from rich.text import Text

_COLUMN: Final = 30


class Screen:
    """Lines with the seconds since the start; nothing in them is markup, and none is broken."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def title(self, text: str) -> None:
        self._line((text, "bold"))
        self._line()

    def step(self, text: str, detail: str = "") -> None:
        self._line(self._clock(), ("▸ ", "cyan"), (f"{text:<{_COLUMN}} ", "bold"), (detail, "cyan"))

    def note(self, text: str, detail: str = "") -> None:
        self._line(self._clock(), f"    {text:<{_COLUMN - 2}} ", (detail, "dim"))

    def end(self, text: str) -> None:
        self._line()
        self._line((text, "green"))

    def _clock(self) -> tuple[str, str]:
        return f"{time.monotonic() - self._began:5.1f} s  ", "dim"

    def _line(self, *parts: str | tuple[str, str]) -> None:
        line = Text.assemble(*parts)
        line.rstrip()
        self._console.print(line, soft_wrap=True)
