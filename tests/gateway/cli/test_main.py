"""The command as a whole: how it is started and how it fails."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.testing import Result

from gateway.cli.failure import CommandError, system_errors_explained
from gateway.settings import Settings, SettingsError

Run = Callable[..., Result]


def test_version_is_one_line_or_an_object_for_scripts(run: Run) -> None:
    assert run("version").stdout.startswith("gatehouse ")
    assert json.loads(run("version", "--json").stdout)["protocol"] == "2026-07-28"


@pytest.mark.parametrize("arguments", [(), ("key",)])
def test_without_a_command_the_help_is_shown(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert "Commands" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("bogus",), "gatehouse: No such command 'bogus'."),
        (("version", "--bogus"), "gatehouse: No such option: --bogus"),
        (("call",), "gatehouse: Missing argument 'TOOL'."),
    ],
)
def test_a_misspelt_command_is_one_line_and_exit_2(run: Run, arguments: tuple[str, ...], line: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"{line}\n")


@pytest.mark.parametrize("name", ["serve", "check", "tools", "call", "key create", "key list", "key revoke", "usage"])
def test_every_command_that_needs_settings_takes_a_file(run: Run, name: str) -> None:
    assert "--config" in run(*name.split(), "--help").stdout


def test_a_failure_of_the_process_is_one_line_and_no_traceback(
    command: Callable[..., CompletedProcess[str]],
) -> None:
    result = command("check", "--config", "nope.yaml")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "gatehouse: nope.yaml: cannot be read: No such file or directory\n"


def test_a_reader_that_has_seen_enough_is_no_failure_to_tell_of() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        command = [sys.executable, "-m", "gateway", "version"]
        ended = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writes)
    assert (ended.returncode, ended.stderr) == (1, "")
    with pytest.raises(BrokenPipeError), system_errors_explained(Settings()):
        raise BrokenPipeError


def test_whoever_asks_for_it_gets_the_exception_itself(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_DEBUG", "1")
    raised = run("check", "--config", "nope.yaml").exception
    assert isinstance(raised, CommandError)
    assert isinstance(raised.__cause__, SettingsError)


WITNESS = """
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
    ended = subprocess.run(
        [sys.executable, "-c", WITNESS, unneeded, *arguments.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.splitlines()[-1].strip() == "loaded:"


@pytest.mark.parametrize("words", [("--help",), ("key",), ("key", "list", "--help"), ("backends", "add", "--help")])
def test_help_names_no_value_for_a_flag_that_takes_none(run: Run, words: tuple[str, ...]) -> None:
    assert "bool" not in run(*words).stdout
