"""The `gatehouse` command: registers all subcommands and converts every failure into an error line and an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException

from gateway.cli import account_commands, commands, identity_commands, setup_commands
from gateway.cli.approvals import approvals
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

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands by section; typer would put all groups after all commands."""
        sections: dict[str, list[str]] = {section: [] for section in SECTIONS}
        for name, command in self.commands.items():
            sections.setdefault(getattr(command, "rich_help_panel", None) or OPERATE, []).append(name)
        return [name for names in sections.values() for name in names]

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


START, CALLS, ACCESS, OPERATE = "Set up and start", "Call and observe", "Access", "Operate"
SECTIONS = (START, CALLS, ACCESS, OPERATE)
"""Sections of `gatehouse --help`."""


def _print_version(asked: bool) -> None:
    if asked:
        commands.version()
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _run(  # pyright: ignore[reportUnusedFunction] - typer calls it
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    _start(context)


@keys.callback(invoke_without_command=True)
@demos.callback(invoke_without_command=True)
@database.callback(invoke_without_command=True)
@backends.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command(rich_help_panel=START)(setup_commands.init)
app.command(rich_help_panel=START)(commands.serve)
app.command(rich_help_panel=START)(commands.welcome)
app.command(rich_help_panel=START)(setup_commands.connect)
app.command("import", rich_help_panel=START)(commands.import_file)
app.add_typer(demos, name="demo", rich_help_panel=START)
app.command(rich_help_panel=CALLS)(commands.tools)
app.command(rich_help_panel=CALLS)(commands.call)
app.command(rich_help_panel=CALLS)(commands.ping)
app.command(rich_help_panel=CALLS)(setup_commands.stdio)
app.command(rich_help_panel=CALLS)(top)
app.command(rich_help_panel=CALLS)(trace)
app.command(rich_help_panel=CALLS)(usage)
app.add_typer(audit, name="audit", rich_help_panel=CALLS)
app.add_typer(approvals, name="approvals", rich_help_panel=ACCESS)
keys.command("create")(commands.create_key)
keys.command("list")(commands.list_keys)
keys.command("revoke")(commands.revoke_key)
app.add_typer(keys, name="key", rich_help_panel=ACCESS)
app.add_typer(identity_commands.users, name="user", rich_help_panel=ACCESS)
app.add_typer(identity_commands.clients, name="client", rich_help_panel=ACCESS)
app.add_typer(account_commands.accounts, name="accounts", rich_help_panel=ACCESS)
app.add_typer(tenants, name="tenant", rich_help_panel=ACCESS)
app.add_typer(policies, name="policy", rich_help_panel=ACCESS)
app.add_typer(identity_commands.scim, name="scim", rich_help_panel=ACCESS)
app.command("signin-code", rich_help_panel=ACCESS)(identity_commands.admin_sign_in_code)
app.add_typer(identity_commands.signing, name="signing", rich_help_panel=ACCESS)
app.add_typer(account_commands.vault, name="vault", rich_help_panel=ACCESS)
backends.command("add")(commands.add)
backends.command("remove")(commands.remove)
backends.command("list")(commands.list_backends)
backends.command("pin")(commands.pin)
backends.command("check")(commands.check_backends)
app.add_typer(backends, name="backends", rich_help_panel=OPERATE)
app.command(rich_help_panel=OPERATE)(commands.check)
app.command(rich_help_panel=OPERATE)(setup_commands.doctor)
database.command("upgrade")(commands.upgrade_database)
app.add_typer(database, name="db", rich_help_panel=OPERATE)
app.command(rich_help_panel=OPERATE)(commands.version)
