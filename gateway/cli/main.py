"""The `gatehouse` command: registers all subcommands and converts every failure into an error line and an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException

from gateway.cli import commands, identity_commands, setup_commands
from gateway.cli.audit import audit
from gateway.cli.failure import BAD_SETTINGS, FAILED, CommandError, print_stderr
from gateway.cli.policy import policies
from gateway.cli.setup_commands import demos
from gateway.cli.tenant import tenants
from gateway.cli.top import top
from gateway.cli.trace import trace
from gateway.cli.usage import usage
from gateway.errors import Fault, Kind


class CommandGroup(TyperGroup):
    """Prints every failure as one line on standard error. GATEHOUSE_DEBUG=1 shows the traceback instead."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        _hide_flag_metavars(self)
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader closed the pipe, as `head` does. The final flush must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = FAILED
        except Exception as exc:  # the outermost handler: anything not caught here prints a traceback
            if os.environ.get("GATEHOUSE_DEBUG") == "1":
                raise
            code = _report(exc)
        sys.exit(code if isinstance(code, int) else 0)


def _hide_flag_metavars(command: Any) -> None:
    """Remove the value placeholder of flags from the help: a flag takes no value."""
    for option in (*command.params, command.get_help_option(typer.Context(command))):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for subcommand in getattr(command, "commands", {}).values():
        _hide_flag_metavars(subcommand)


def _report(exc: Exception) -> int:
    match exc:
        case CommandError():
            lines, code = exc.lines, exc.code
        case TyperException():
            lines, code = (exc.format_message(),), exc.exit_code
        case Fault():
            lines, code = (exc.message,), BAD_SETTINGS if exc.kind is Kind.INVALID_INPUT else FAILED
        case Abort():
            lines, code = ("aborted",), FAILED
        case _:
            lines, code = (f"unexpected {type(exc).__name__}; set GATEHOUSE_DEBUG=1 for the traceback",), FAILED
    for line in lines:
        print_stderr(line)
    return code


app = typer.Typer(cls=CommandGroup, help="One MCP endpoint for a whole organisation.")
keys = typer.Typer(help="Create, list and revoke API keys.")
database = typer.Typer(help="Manage the database.")
backends = typer.Typer(help="Add, remove, list and check backends.")


@app.callback(invoke_without_command=True)
@keys.callback(invoke_without_command=True)
@demos.callback(invoke_without_command=True)
@database.callback(invoke_without_command=True)
@backends.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command()(commands.version)
app.command()(setup_commands.init)
app.command()(commands.serve)
app.command()(commands.check)
app.command()(setup_commands.doctor)
app.command()(setup_commands.connect)
app.command()(commands.tools)
app.command()(commands.call)
app.command()(commands.ping)
app.command()(top)
app.command()(trace)
app.command()(usage)
app.command()(setup_commands.stdio)
keys.command("create")(commands.create_key)
keys.command("list")(commands.list_keys)
keys.command("revoke")(commands.revoke_key)
app.add_typer(keys, name="key")
app.add_typer(demos, name="demo")
app.add_typer(tenants, name="tenant")
app.add_typer(policies, name="policy")
app.add_typer(audit, name="audit")
database.command("upgrade")(commands.upgrade_database)
app.add_typer(database, name="db")
app.command("import")(commands.import_file)
backends.command("add")(commands.add)
backends.command("remove")(commands.remove)
backends.command("list")(commands.list_backends)
backends.command("pin")(commands.pin)
backends.command("check")(commands.check_backends)
app.add_typer(backends, name="backends")
app.add_typer(identity_commands.users, name="user")
app.add_typer(identity_commands.clients, name="client")
app.add_typer(identity_commands.signing, name="signing")
