"""Generates `docs/commands.md` from the command-line interface: `python docs/make_commands.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from gateway.cli.main import app

PAGE: Final = Path(__file__).with_name("commands.md")

HEAD: Final = """\
# Commands

<!-- Written by `python docs/make_commands.py`; change the help in `gateway/cli/`, not this page. -->

Every command has a `--help` option. Results are printed on standard output, messages on standard error; colours and
progress bars appear on a terminal only. The [exit code](errors.md#exit-codes-of-the-command) reports the outcome.
`--config FILE` selects the settings file; the default is `GATEHOUSE_CONFIG`, then `gatehouse.yaml` in the working
folder. `--json` prints JSON for scripts. A command that calls a gateway uses the one of these settings unless `--url`
or `GATEHOUSE_URL` names another. `gatehouse --install-completion` installs shell completion. `GATEHOUSE_DEBUG=1`
prints the traceback of an unexpected error.
"""

SHARED: Final = {"--help", "--config", "--json"}
"""Options that the introduction describes for all commands."""


def page() -> str:
    return "\n".join([HEAD, *(line for name, command in every() for line in _section(name, command))])


def every() -> Iterator[tuple[str, Any]]:
    """Yield each executable command with its full name."""
    yield from _walk("gatehouse", get_command(app))


def parameters(command: Any) -> list[Any]:
    return [each for each in command.params if not getattr(each, "hidden", False)]


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    # A group with a `--json` option is executable itself.
    if any("--json" in each.opts for each in command.params):
        yield name, command
    for subcommand_name, subcommand in command.commands.items():
        if not subcommand.hidden:
            yield from _walk(f"{name} {subcommand_name}", subcommand)


def _section(name: str, command: Any) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"{command.help.strip()}\n"
    own_parameters = [each for each in parameters(command) if not (set(each.opts) & SHARED)]
    shared_options = {option for each in command.params for option in each.opts} & {"--config", "--json"}
    if own_parameters:
        yield "| parameter | description |\n|---|---|"
        for each in own_parameters:
            yield f"| {_name(each)} | {_description(each)} |"
        yield ""
    if shared_options:
        yield f"Also accepts {' and '.join(f'`{option}`' for option in sorted(shared_options))}.\n"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name.upper()).replace('|', '¦')}`"
    options = ", ".join(f"`{option}`" for option in parameter.opts)
    return options if parameter.is_flag else f"{options} {_value(parameter)}"


def _value(parameter: Any) -> str:
    return parameter.metavar or "…"


def _description(parameter: Any) -> str:
    parts = [" ".join((parameter.help or "").split()).replace("|", "\\|")]
    if parameter.required:
        parts.append("Required.")
    elif (
        isinstance(parameter.default, str | int) and not isinstance(parameter.default, bool) and parameter.default != ""
    ):
        parts.append(f"Default `{parameter.default}`.")
    if parameter.envvar:
        parts.append(f"Or `{parameter.envvar}`.")
    return " ".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
