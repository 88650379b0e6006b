"""What the operating system refuses, said as what to do about it."""

import socket
from collections.abc import Callable
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
    assert line == f"127.0.0.1:{port} is in use; choose another with --port"


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
