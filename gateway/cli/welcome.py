"""What `serve` says when it has started: where it is, how to reach it, and where its things are."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from gateway.cli.connect.clients import Wish, claude_code, cursor, vscode


@dataclass(frozen=True, slots=True)
class Welcome:
    """The facts of one start."""

    url: str
    asked: bool
    """Whether callers are asked for a credential."""
    key: str | None
    """A key made just now: it is shown here and nowhere else."""
    source: Path | None
    data: Path
    code: str | None = None
    """What a browser of this machine signs in with, once."""
    console: str | None = None
    """The operator's page."""

    def show(self, console: Console) -> None:
        say = _Paper(console)
        say.line(("Gatehouse", "bold"), " serves ", (self.url, "bold cyan"))
        say.line()
        if self.console is not None:
            say.fact("Console", (self.console, "cyan"))
        if self.code is not None:
            say.fact("Sign in", (self.code, "bold green"))
            say.fact("", ("good once, in the console or in the browser that your client opens", "dim"))
        if self.key is not None:
            say.fact("Your key", (self.key, "bold green"))
            say.fact("", ("for scripts and clients without a browser; shown this once, keep it", "dim"))
        elif self.asked:
            say.fact("A key", self._make_a_key())
        else:
            say.fact("Keys", "nobody is asked for one (auth.mode: none)")
        say.fact("Settings", str(self.source.absolute()) if self.source else "the defaults")
        say.fact("Data", str(self.data.absolute()))
        say.line()
        say.line(("Connect a client", "bold"))
        wish = Wish("gatehouse", self.url)
        say.step("Claude Code", claude_code(wish).line)
        say.step("Cursor, in ~/.cursor/mcp.json", _compact({"mcpServers": {wish.name: cursor(wish).entry}}))
        say.step("VS Code", vscode(wish).line)
        say.step("Others, or into their own files", "gatehouse connect --help")
        say.line()
        say.line(("Ctrl-C stops it.", "dim"))

    def _make_a_key(self) -> str:
        config = f" --config {shlex.quote(str(self.source))}" if self.source else ""
        return f"gatehouse key create{config} --tenant default --subject NAME"


class _Paper:
    """Lines as they are: nothing in them is markup, and none is broken, so that what is copied is whole."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, *parts: str | tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def fact(self, name: str, value: str | tuple[str, str]) -> None:
        self.line(f"  {name:<10}", value)

    def step(self, name: str, value: str) -> None:
        self.line(f"  {name}")
        self.line("    ", (value, "cyan"))


def _compact(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
