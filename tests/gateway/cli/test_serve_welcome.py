"""What `serve` says first: every line whole, and fit to be pasted where it belongs."""

import io
import json
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.serve import StartupMessage

KEY = "gth_abc123abc123_" + "s" * 43 + "_1fENWp"
URL = "http://127.0.0.1:8080/mcp"
CODE = "ABCDE-FGHJK"


def said(width: int = 40, **facts: object) -> list[str]:
    given = {"url": URL, "asked": True, "key": KEY, "source": None, "data": Path("/srv/data"), "code": CODE, **facts}
    paper = io.StringIO()
    StartupMessage(**given).show(Console(file=paper, width=width))  # type: ignore[arg-type]
    return [line.rstrip() for line in paper.getvalue().splitlines()]


def after(lines: list[str], name: str) -> str:
    (line,) = [line for line in lines if line.startswith(f"  {name} ")]
    return line.removeprefix(f"  {name}").strip()


def below(lines: list[str], name: str) -> str:
    return lines[lines.index(f"  {name}") + 1].strip()


@pytest.mark.parametrize("width", [20, 80, 300])
def test_no_line_is_broken_however_narrow_the_paper(width: int) -> None:
    assert said(width) == said(1000)
    assert sum(KEY in line for line in said(width)) == 1


def test_each_client_gets_the_address_and_signs_in_by_itself() -> None:
    lines = said()
    claude = shlex.split(below(lines, "Claude Code"))
    assert claude == ["claude", "mcp", "add", "--transport", "http", "gatehouse", URL]
    cursor = below(lines, "Cursor, in ~/.cursor/mcp.json")
    assert json.loads(cursor) == {"mcpServers": {"gatehouse": {"url": URL}}}
    *command, entry = shlex.split(below(lines, "VS Code"))
    assert command == ["code", "--add-mcp"]
    assert json.loads(entry) == {"name": "gatehouse", "type": "http", "url": URL}


def test_the_code_to_sign_in_with_is_shown_where_there_is_one() -> None:
    assert after(said(), "Sign in") == CODE
    assert not any(line.startswith("  Sign in") for line in said(code=None))


def test_a_later_start_shows_how_a_key_is_made() -> None:
    lines = said(key=None, source=Path("/etc/my house.yaml"))
    assert after(lines, "A key") == (
        "gatehouse key create --config '/etc/my house.yaml' --tenant default --subject NAME"
    )
    assert "gth_" not in "".join(lines)


def test_where_nobody_is_asked_no_header_is_shown() -> None:
    lines = said(asked=False, key=None, code=None)
    assert "Authorization" not in "".join(lines)
    assert "auth.mode: none" in after(lines, "Keys")


def test_the_settings_and_data_are_where_they_are_said_to_be() -> None:
    assert after(said(), "Settings") == "the defaults"
    assert after(said(source=Path("/etc/g.yaml")), "Settings") == "/etc/g.yaml"
    assert after(said(data=Path("here")), "Data") == str(Path("here").absolute())


def test_brackets_in_an_address_or_a_folder_are_not_taken_for_markup() -> None:
    lines = said(url="http://[fd00::1]:8080/mcp", data=Path("/srv/[bold]x[/]"))
    assert lines[0] == "Gatehouse serves http://[fd00::1]:8080/mcp"
    assert after(lines, "Data") == "/srv/[bold]x[/]"
