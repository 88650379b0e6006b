"""Consoles for the tables of commands: as wide as the terminal, and never cut when the output is piped."""

import sys
from typing import Final

from rich.console import Console

_PIPE_WIDTH: Final = 10_000
"""Columns of an output that is no terminal; rich would assume 80 and cut the cells."""


def open_output(*, highlight: bool = True) -> Console:
    """Return a console on standard output. Colours follow NO_COLOR and appear on a terminal only."""
    return Console(highlight=highlight, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
