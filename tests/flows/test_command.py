"""The `gatehouse` command against a live gateway, and its errors when it cannot start."""

import json
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.flows.process import FILE, Served, run

Done = subprocess.CompletedProcess[str]

FAILED, BAD_SETTINGS, CALL_FAILED = 1, 2, 5
COMMANDS = {
    "tools": ("tools", "--json"),
    "fault": ("call", "strict_refuse", "--json"),
    "result": ("call", "soft_double", '{"number": "two"}', "--json"),
}


@pytest.fixture(scope="module")
def results(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Done]:
    """The results of all commands."""
    folder = tmp_path_factory.mktemp("command")
    reach = {"GATEHOUSE_URL": served.url, "GATEHOUSE_TOKEN": served.key}
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(lambda arguments: run(folder, *arguments, **reach), COMMANDS.values())
        return dict(zip(COMMANDS, done, strict=True))


def test_tools_lists_the_tools_that_the_key_may_call(results: Mapping[str, Done]) -> None:
    tools = {tool["name"]: tool for tool in json.loads(results["tools"].stdout)}
    assert {"core_ping", "plain_echo", "strict_double"} <= set(tools)
    assert tools["plain_echo"]["_meta"]["gatehouse/id"] == "plain.echo"


def test_fault_is_printed_on_stderr_with_its_suggested_fix(results: Mapping[str, Done]) -> None:
    error = json.loads(results["fault"].stdout)["error"]
    assert results["fault"].returncode == CALL_FAILED
    assert (error["code"], error["data"]["kind"]) == (409, "illegal_state")
    assert error["data"]["details"] == {"lid": "open"}
    assert results["fault"].stderr.splitlines() == [
        "gatehouse: Close the lid first. (code 409)",
        "gatehouse: Call close_lid.",
    ]


def test_failed_call_of_a_tool_with_output_schema_has_its_error_in_meta(results: Mapping[str, Done]) -> None:
    result = json.loads(results["result"].stdout)
    error = result["_meta"]["gatehouse/error"]
    assert results["result"].returncode == CALL_FAILED
    assert result["isError"] is True
    assert error["kind"] == "invalid_input"
    assert (error["validation_path"], error["validation_rule"]) == ("input.number", "type")


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Done]:
    """Four failed starts, each for another reason."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("busy", "data", "file", "module")}
    (folders["data"] / ".gatehouse").write_text("not a folder")
    (folders["file"] / FILE).write_text("server:\n  port: 1\nbackends: {core: [\n")
    (folders["module"] / FILE).write_text("backends:\n  mine: {module: mine}\n")
    (folders["module"] / "mine.py").write_text("def server(:\n")
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(2) as pool:
        port = str(other.getsockname()[1])

        def start(name: str, folder: Path) -> Done:
            return run(folder, "serve", "--port", port if name == "busy" else "0")

        return dict(zip(folders, pool.map(start, folders, folders.values()), strict=True))


def one_line(done: Done, code: int = FAILED) -> str:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_port_in_use_is_one_line_with_a_fix(starts: Mapping[str, Done]) -> None:
    port = starts["busy"].args[-1]
    assert one_line(starts["busy"]).startswith(f"gatehouse: 127.0.0.1:{port} is in use; choose another with --port")


def test_unusable_data_folder_is_one_line(starts: Mapping[str, Done]) -> None:
    line = one_line(starts["data"])
    assert "/.gatehouse: " in line
    assert "belong to the gateway's user" in line


def test_invalid_yaml_is_one_line_with_its_position(starts: Mapping[str, Done]) -> None:
    assert one_line(starts["file"], BAD_SETTINGS).startswith(f"gatehouse: {FILE}:4:1: not valid YAML")


def test_module_load_error_is_one_line_that_names_the_entry(starts: Mapping[str, Done]) -> None:
    assert "backends.mine" in one_line(starts["module"], BAD_SETTINGS)
