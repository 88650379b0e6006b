"""Pictures of what the demos print: `python docs/make_pictures.py NAME ARGUMENT…` runs `gatehouse demo NAME ARGUMENT…`.

The terminal is drawn by rich, as docs/pictures/demo-NAME.svg; nothing in it is written by hand.
"""

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS = 100
PICTURES = Path(__file__).parent / "pictures"


def main(name: str, *arguments: str) -> None:
    command = ["gatehouse", "demo", name, *arguments]
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603  # our own
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ gatehouse demo {name}\n", style="bold"))
    console.print(Text.from_ansi(said.rstrip()))
    drawn = console.export_svg(title="", theme=MONOKAI, unique_id=f"demo-{name}")
    # Whoever looks at it has a font of fixed width; it is fetched from nowhere.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"<!-- Generated.*?-->\s*", "", drawn).replace("Fira Code, monospace", "monospace")
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"demo-{name}.svg").write_text(drawn, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
