"""The startup message of `gatehouse serve`: complete lines that can be copied."""

import io
import json
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.welcome import StartupMessage

KEY = "gth_abc123abc123_" + "s" * 43 + "_1fENWp"
URL = "http://127.0.0.1:8080/mcp"
CODE = "ABCDE-FGHJK"


def message_lines(width: int = 40, **facts: object) -> list[str]:
    fields = {
        "url": URL,
        "auth_required": True,
        "key": KEY,
        "source": None,
        "data": Path("/srv/data"),
        "code": CODE,
        **facts,
    }
    output = io.StringIO()
    StartupMessage(**fields).show(Console(file=output, width=width))  # type: ignore[arg-type]
    return [line.rstrip() for line in output.getvalue().splitlines()]


def value_of(lines: list[str], name: str) -> str:
    (line,) = [line for line in lines if line.startswith(f"  {name} ")]
    return line.removeprefix(f"  {name}").strip()


def command_of(lines: list[str], name: str) -> str:
    return lines[lines.index(f"  {name}") + 1].strip()


@pytest.mark.parametrize("width", [20, 80, 300])
def test_lines_are_not_wrapped_on_a_narrow_terminal(width: int) -> None:
    assert message_lines(width) == message_lines(1000)
    assert sum(KEY in line for line in message_lines(width)) == 1


def test_each_client_gets_the_url_without_a_credential() -> None:
    lines = message_lines()
    claude = shlex.split(command_of(lines, "Claude Code"))
    assert claude == ["claude", "mcp", "add", "--transport", "http", "gatehouse", URL]
    cursor = command_of(lines, "Cursor, in ~/.cursor/mcp.json")
    assert json.loads(cursor) == {"mcpServers": {"gatehouse": {"url": URL}}}
    *command, entry = shlex.split(command_of(lines, "VS Code"))
    assert command == ["code", "--add-mcp"]
    assert json.loads(entry) == {"name": "gatehouse", "type": "http", "url": URL}


def test_sign_in_code_is_shown_if_there_is_one() -> None:
    assert value_of(message_lines(), "Sign in") == CODE
    assert not any(line.startswith("  Sign in") for line in message_lines(code=None))


def test_later_start_shows_how_to_create_a_key() -> None:
    lines = message_lines(key=None, source=Path("/etc/my settings.yaml"))
    assert value_of(lines, "API key") == (
        "gatehouse key create --config '/etc/my settings.yaml' --tenant default --subject NAME"
    )
    assert "gth_" not in "".join(lines)


def test_no_credential_is_shown_if_authentication_is_off() -> None:
    lines = message_lines(auth_required=False, key=None, code=None)
    assert "Authorization" not in "".join(lines)
    assert "auth.mode: none" in value_of(lines, "API key")


def test_settings_file_and_data_folder_are_shown() -> None:
    assert value_of(message_lines(), "Settings") == "defaults"
    assert value_of(message_lines(source=Path("/etc/g.yaml")), "Settings") == "/etc/g.yaml"
    assert value_of(message_lines(data=Path("here")), "Data") == str(Path("here").absolute())


def test_brackets_in_a_url_or_folder_are_not_parsed_as_markup() -> None:
    lines = message_lines(url="http://[fd00::1]:8080/mcp", data=Path("/srv/[bold]x[/]"))
    assert lines[0] == "Gatehouse serves http://[fd00::1]:8080/mcp"
    assert value_of(lines, "Data") == "/srv/[bold]x[/]"
