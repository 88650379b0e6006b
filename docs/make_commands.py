"""Writes `docs/commands.md` from the command itself: `python docs/make_commands.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from gateway.cli.main import app

PAGE: Final = Path(__file__).with_name("commands.md")

HEAD: Final = """\
# Commands

<!-- Written by `python docs/make_commands.py`; change the help in `gateway/cli/`, not this page. -->

Every command says what it can do with `--help`. It prints what was asked for on standard output and all else on
standard error; colours and progress bars appear on a terminal only. How it ends is told by its
[exit code](errors.md#exit-codes-of-the-command). `--config FILE` names the settings file, else `GATEHOUSE_CONFIG` or
`gatehouse.yaml` in the working folder; `--json` prints for scripts. A command that speaks to a gateway asks the one of
these settings unless `--url` or `GATEHOUSE_URL` names another. `gatehouse --install-completion` teaches your shell to
complete commands and options; `GATEHOUSE_DEBUG=1` shows where an unexpected failure came from.
"""

SHARED: Final = {"--help", "--config", "--json"}
"""What is said of all of them at the top."""


def page() -> str:
    return "\n".join([HEAD, *(line for name, command in every() for line in _section(name, command))])


def every() -> Iterator[tuple[str, Any]]:
    """Each command that does something, by the words that start it."""
    yield from _below("gatehouse", get_command(app))


def parameters(command: Any) -> list[Any]:
    return [each for each in command.params if not getattr(each, "hidden", False)]


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    # A group that does something by itself has an option of its own to do it with.
    if any("--json" in each.opts for each in command.params):
        yield name, command
    for word, below in command.commands.items():
        if not below.hidden:
            yield from _below(f"{name} {word}", below)


def _section(name: str, command: Any) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"{command.help.strip()}\n"
    wanted = [each for each in parameters(command) if not (set(each.opts) & SHARED)]
    takes = {option for each in command.params for option in each.opts} & {"--config", "--json"}
    if wanted:
        yield "| takes | which is |\n|---|---|"
        for each in wanted:
            yield f"| {_name(each)} | {_words(each)} |"
        yield ""
    if takes:
        yield f"Also takes {' and '.join(f'`{option}`' for option in sorted(takes))}.\n"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name.upper()).replace('|', '¦')}`"
    shown = ", ".join(f"`{option}`" for option in parameter.opts)
    return shown if parameter.is_flag else f"{shown} {_value(parameter)}"


def _value(parameter: Any) -> str:
    return parameter.metavar or "…"


def _words(parameter: Any) -> str:
    said = [" ".join((parameter.help or "").split()).replace("|", "\\|")]
    if parameter.required:
        said.append("Required.")
    elif (
        isinstance(parameter.default, str | int) and not isinstance(parameter.default, bool) and parameter.default != ""
    ):
        said.append(f"Default `{parameter.default}`.")
    if parameter.envvar:
        said.append(f"Or `{parameter.envvar}`.")
    return " ".join(said)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
