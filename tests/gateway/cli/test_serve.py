"""`gatehouse serve`: the start, and the errors that prevent it."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.cli.failure import CommandError, explain_system_errors
from gateway.errors import Fault, Kind
from gateway.settings import Settings


def explanation(settings: Settings, work: Callable[[], object]) -> str:
    with pytest.raises(CommandError) as caught, explain_system_errors(settings):
        work()
    assert caught.value.code == 1
    return str(caught.value)


def test_port_in_use_error_names_the_option(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("backends: {}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "--port", str(port))
    line = f"127.0.0.1:{port} is in use; choose another with --port or GATEHOUSE__SERVER__PORT"
    assert (result.exit_code, result.stderr) == (1, f"gatehouse: {line}\n")


def test_foreign_address_error_names_the_option(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("backends: {}\n")
    result = run("serve", "--host", "192.0.2.1", "--port", "8080")
    line = "192.0.2.1:8080 is not an address of this machine; choose another with --host"
    assert (result.exit_code, result.stderr) == (1, f"gatehouse: {line}\n")


def test_unusable_data_folder_error_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "data"
    line = explanation(Settings(data_dir=folder), folder.mkdir)
    assert line == f"cannot use {folder}: Not a directory; make {folder} writable, or change data_dir"


def test_storage_fault_is_reported_with_its_folder(tmp_path: Path) -> None:
    def fail() -> None:
        raise Fault(Kind.UNAVAILABLE, "The database is not one.")

    assert explanation(Settings(data_dir=tmp_path), fail) == f"{tmp_path}: The database is not one."


def test_invalid_settings_end_serve_with_exit_2(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("auth: {mode: none}\n")
    result = run("serve", "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "auth.mode none is allowed on loopback only" in result.stderr
    assert run("serve", "--port", "70000").exit_code == 2


@pytest.mark.parametrize(
    ("backend", "line"),
    [
        ("{module: serve_nowhere}", "serve_nowhere cannot be imported: ModuleNotFoundError: No module named"),
        ("{module: serve_broken}", "serve_broken cannot be imported: RuntimeError: no luck"),
        ("{module: 'backends.core:nothing'}", "backends.core has no `nothing`"),
        ("{module: backends.core, options: {bogus: 1}}", "backends.a"),
    ],
)
def test_module_load_error_ends_serve_with_one_line(
    run: Callable[..., Result], tmp_path: Path, backend: str, line: str
) -> None:
    (tmp_path / "serve_broken.py").write_text("raise RuntimeError('no luck')\n")
    (tmp_path / "gatehouse.yaml").write_text(f"backends: {{a: {backend}}}\n")
    result = run("serve", "--port", "0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert line in result.stderr


def test_startup_message_contains_url_and_key_for_a_first_call(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("backends: {core: {module: backends.core}}\n")
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("GATEHOUSE")}
    started = subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve", "--port", "0"],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(Path(__file__).parents[3]), "COLUMNS": "40"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert started.stdout is not None
        lines = [line.strip() for line in takewhile(lambda line: not line.startswith("Press Ctrl-C"), started.stdout)]
        (connect,) = [line for line in lines if "claude mcp add" in line]
        *_, url = shlex.split(connect)
        (key,) = re.findall(r"gth_\S+", "\n".join(lines))
        listed = run("tools", "--url", url, "--token", key)
        assert (listed.exit_code, "core_ping" in listed.stdout) == (0, True)
    finally:
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=30)


def test_ops_port_in_use_error_names_its_setting(run: Callable[..., Result], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "gatehouse.yaml").write_text(f"server: {{port: 0, ops_port: {port}}}\nbackends: {{}}\n")
        result = run("serve")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"gatehouse: 127.0.0.1:{port} is in use; choose another with server.ops_port\n"


def test_settings_error_of_an_option_names_the_option(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("backends: {}\n")
    result = run("serve", "--workers", "2")
    assert result.exit_code == 2
    assert result.stderr.startswith("gatehouse: --workers: server.workers: more than one worker needs a shared bus")


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        ("database", "postgresql://gate:s3cr3t@127.0.0.1:{port}/gate"),
        ("bus", "redis://:s3cr3t@127.0.0.1:{port}/0"),
    ],
)
def test_unreachable_database_or_bus_is_one_line_with_setting_and_address(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, setting: str, url: str
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        (tmp_path / "gatehouse.yaml").write_text(
            f"server: {{port: 0}}\nbackends: {{}}\n{setting}: {{url: '{url.format(port=port)}'}}\n"
        )
        result = command("serve")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"gatehouse: {setting}.url: 127.0.0.1:{port} cannot be used (")
    assert line.endswith("; run `gatehouse doctor` to find the cause")
    assert "s3cr3t" not in result.stdout + result.stderr
