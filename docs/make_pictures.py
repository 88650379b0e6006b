"""Pictures of what the demos print: `python docs/make_pictures.py NAME ARGUMENT…` runs `gatehouse demo NAME ARGUMENT…`.

The terminal is drawn by rich, as docs/pictures/demo-NAME.svg; nothing in it is written by hand.
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


def draw(name: str, shown: str, arguments: Sequence[str], columns: int = COLUMNS, **more: str) -> None:
    """What `gatehouse` prints for these arguments, below the command as it is `shown`; `more` is environment."""
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(columns), **more}
    command = [sys.executable, "-m", "gateway", *arguments]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603  # our own
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ gatehouse {shown}\n", style="bold"))
    console.print(Text.from_ansi(said.rstrip()))
    drawn = console.export_svg(title="", theme=MONOKAI, unique_id=name)
    # Whoever looks at it has a font of fixed width; it is fetched from nowhere.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"<!-- Generated.*?-->\s*", "", drawn).replace("Fira Code, monospace", "monospace")
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(drawn, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
