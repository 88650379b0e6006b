"""Output of commands: consoles for tables, as wide as the terminal and never cut in a pipe; numbers with nouns."""

import sys
from typing import Final

from rich.console import Console

_PIPE_WIDTH: Final = 10_000
"""Columns of an output that is no terminal; rich would assume 80 and cut the cells."""


def count(number: int, noun: str) -> str:
    """Return the number with its noun: "1 tool", "2 tools"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def open_output(*, highlight: bool = True) -> Console:
    """Return a console on standard output. Colours follow NO_COLOR and appear on a terminal only."""
    return Console(highlight=highlight, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
