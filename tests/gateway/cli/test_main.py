"""The `gatehouse` command: help, errors, exit codes and lazy imports."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.testing import Result

from gateway.cli.failure import CommandError, explain_system_errors
from gateway.settings import Settings, SettingsError

Run = Callable[..., Result]


def test_version_prints_one_line_or_json(run: Run) -> None:
    assert run("version").stdout.startswith("gatehouse ")
    assert json.loads(run("version", "--json").stdout)["protocol"] == "2026-07-28"


@pytest.mark.parametrize(("arguments", "heading"), [((), "Set up and start"), (("key",), "Commands")])
def test_help_is_shown_without_a_command(run: Run, arguments: tuple[str, ...], heading: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert heading in result.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("bogus",), "gatehouse: No such command 'bogus'."),
        (("version", "--bogus"), "gatehouse: No such option: --bogus"),
        (("call",), "gatehouse: Missing argument 'TOOL'."),
    ],
)
def test_usage_error_is_one_line_with_exit_2(run: Run, arguments: tuple[str, ...], line: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"{line}\n")


@pytest.mark.parametrize("name", ["serve", "check", "tools", "call", "key create", "key list", "key revoke", "usage"])
def test_commands_with_settings_accept_the_config_option(run: Run, name: str) -> None:
    assert "--config" in run(*name.split(), "--help").stdout


def test_failure_is_one_line_without_traceback(
    command: Callable[..., CompletedProcess[str]],
) -> None:
    result = command("check", "--config", "nope.yaml")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "gatehouse: nope.yaml: cannot be read: No such file or directory\n"


def test_closed_output_pipe_prints_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        command = [sys.executable, "-m", "gateway", "version"]
        result = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(write_end)
    assert (result.returncode, result.stderr) == (1, "")
    with pytest.raises(BrokenPipeError), explain_system_errors(Settings()):
        raise BrokenPipeError


def test_debug_variable_raises_the_original_exception(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_DEBUG", "1")
    raised = run("check", "--config", "nope.yaml").exception
    assert isinstance(raised, CommandError)
    assert isinstance(raised.__cause__, SettingsError)


PRINT_LOADED_MODULES = """
import sys
from gateway.cli.main import app
try:
    app(sys.argv[2:])
except SystemExit:
    pass
print("loaded:", *(name for name in sys.argv[1].split() if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        ("version", "gateway.app gateway.settings gateway.state mcp fastapi sqlalchemy httpx rich.table"),
        ("--help", "gateway.app gateway.settings gateway.state mcp fastapi sqlalchemy httpx"),
        ("key create --help", "gateway.app gateway.settings gateway.state mcp fastapi sqlalchemy httpx"),
        ("key list", "gateway.app mcp fastapi httpx"),
        ("check", "gateway.app gateway.state.database mcp fastapi sqlalchemy httpx"),
        ("tools --url http://127.0.0.1:1/mcp", "gateway.app gateway.settings mcp fastapi sqlalchemy"),
    ],
)
def test_a_command_loads_only_what_it_needs(tmp_path: Path, arguments: str, unneeded: str) -> None:
    (tmp_path / "gatehouse.yaml").write_text("backends: {}\n")
    result = subprocess.run(
        [sys.executable, "-c", PRINT_LOADED_MODULES, unneeded, *arguments.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.splitlines()[-1].strip() == "loaded:"


@pytest.mark.parametrize("arguments", [("--help",), ("key",), ("key", "list", "--help"), ("backends", "add", "--help")])
def test_help_shows_no_value_placeholder_for_flags(run: Run, arguments: tuple[str, ...]) -> None:
    assert "bool" not in run(*arguments).stdout
