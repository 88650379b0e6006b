"""How `serve` starts, and how it does not: what is refused, said as what to do about it."""

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

from gateway.cli.failure import Failure, system_errors_explained
from gateway.errors import Fault, Kind
from gateway.settings import Server, Settings


def explained(settings: Settings, work: Callable[[], object]) -> str:
    with pytest.raises(Failure) as caught, system_errors_explained(settings):
        work()
    assert caught.value.code == 1
    return str(caught.value)


def test_a_busy_port_is_named_with_the_option_to_change_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = explained(Settings(server=Server(port=port)), lambda: socket.create_server(("127.0.0.1", port)))
    assert line == f"127.0.0.1:{port} is in use; choose another with --port or GATEHOUSE__SERVER__PORT"


def test_an_address_of_another_machine_is_named_with_the_option_to_change_it() -> None:
    settings = Settings(server=Server(host="192.0.2.1", port=8080))
    line = explained(settings, lambda: socket.create_server(("192.0.2.1", 8080)))
    assert line == "192.0.2.1:8080 is not an address of this machine; choose another with --host"


def test_a_data_folder_that_cannot_be_used_is_named_with_the_setting_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "data"
    line = explained(Settings(data_dir=folder), folder.mkdir)
    assert line == f"cannot use {folder}: Not a directory; make {folder} yours and writable, or set data_dir"


def test_a_fault_of_the_state_is_said_with_the_folder_it_is_in(tmp_path: Path) -> None:
    def fail() -> None:
        raise Fault(Kind.UNAVAILABLE, "The database is not one.")

    assert explained(Settings(data_dir=tmp_path), fail) == f"{tmp_path}: The database is not one."


def test_settings_that_cannot_be_used_end_serve_with_exit_2(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("auth: {mode: none}\n")
    result = run("serve", "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "auth.mode none serves loopback only" in result.stderr
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
def test_a_module_that_cannot_be_loaded_ends_serve_as_it_ends_check(
    run: Callable[..., Result], tmp_path: Path, backend: str, line: str
) -> None:
    (tmp_path / "serve_broken.py").write_text("raise RuntimeError('no luck')\n")
    (tmp_path / "gatehouse.yaml").write_text(f"backends: {{a: {backend}}}\n")
    result = run("serve", "--port", "0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert line in result.stderr


def test_what_a_pipe_is_told_at_the_first_start_is_enough_to_call(run: Callable[..., Result], tmp_path: Path) -> None:
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
        said = [line.strip() for line in takewhile(lambda line: not line.startswith("Ctrl-C"), started.stdout)]
        (connect,) = [line for line in said if "claude mcp add" in line]
        *_, url = shlex.split(connect)
        (key,) = re.findall(r"gth_\S+", "\n".join(said))
        listed = run("tools", "--url", url, "--token", key)
        assert (listed.exit_code, "core_ping" in listed.stdout) == (0, True)
    finally:
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=30)
