"""Draws the output of a demo: `python docs/make_pictures.py NAME ARGUMENT…` runs `gatehouse demo NAME ARGUMENT…`.

rich renders the terminal output to docs/pictures/demo-NAME.svg.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS = 100
PICTURES = Path(__file__).parent / "pictures"


def main(name: str, *arguments: str) -> None:
    draw(f"demo-{name}", f"demo {name}", ["demo", name, *arguments])


def draw(name: str, title: str, arguments: Sequence[str], columns: int = COLUMNS, **variables: str) -> None:
    """Draw the output of `gatehouse` with these arguments below the command line `title`.

    `variables` are additional environment variables.
    """
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(columns), **variables}
    command = [sys.executable, "-m", "gateway", *arguments]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own command
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ gatehouse {title}\n", style="bold"))
    console.print(Text.from_ansi(output.rstrip()))
    drawn = console.export_svg(title="", theme=MONOKAI, unique_id=name)
    # Use the viewer's own monospace font instead of fetching a web font.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"<!-- Generated.*?-->\s*", "", drawn).replace("Fira Code, monospace", "monospace")
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(drawn, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
