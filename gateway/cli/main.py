"""The `gatehouse` command: its groups, and the one place where a failure becomes a line and an exit code."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException

from gateway.cli import check, key, serve, tools
from gateway.cli.failure import BAD_SETTINGS, FAILED, Failure, say
from gateway.cli.options import AsJson, Config
from gateway.contract import MODERN
from gateway.errors import Fault
from gateway.settings import SettingsError


class Gatehouse(TyperGroup):
    """Says every failure in a line; tracebacks are for those who ask with GATEHOUSE_DEBUG=1."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except Exception as exc:  # the last door: what passes it is a traceback
            if os.environ.get("GATEHOUSE_DEBUG") == "1":
                raise
            code = _report(exc)
        sys.exit(code if isinstance(code, int) else 0)


def _report(exc: Exception) -> int:
    match exc:
        case Failure():
            lines, code = exc.lines, exc.code
        case SettingsError():
            lines, code = exc.lines, BAD_SETTINGS
        case TyperException():
            lines, code = (exc.format_message(),), exc.exit_code
        case Fault():
            lines, code = (exc.message,), FAILED
        case Abort():
            lines, code = ("stopped",), FAILED
        case _:
            lines, code = (f"unexpected {type(exc).__name__}; GATEHOUSE_DEBUG=1 shows where",), FAILED
    for line in lines:
        say(line)
    return code


app = typer.Typer(cls=Gatehouse, add_completion=False, help="One MCP endpoint for a whole organisation.")


@app.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def version(config: Config = None, as_json: AsJson = False) -> None:
    """Say which Gatehouse this is."""
    del config  # every command takes it; this one needs nothing from it
    gatehouse, python = installed_version("gatehouse"), platform.python_version()
    if as_json:
        print(json.dumps({"gatehouse": gatehouse, "python": python, "protocol": MODERN}))
    else:
        print(f"gatehouse {gatehouse} (MCP {MODERN}, Python {python})")


app.command("serve")(serve.command)
app.command("check")(check.command)
app.command("tools")(tools.list_tools)
app.command("call")(tools.call)
app.add_typer(key.app, name="key")
