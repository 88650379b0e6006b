"""The `gatehouse` command against a live gateway, and what it says when it cannot start."""

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
def said(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Done]:
    """What each of the commands answered."""
    folder = tmp_path_factory.mktemp("command")
    reach = {"GATEHOUSE_URL": served.url, "GATEHOUSE_TOKEN": served.key}
    with ThreadPoolExecutor(2) as two_at_a_time:
        done = two_at_a_time.map(lambda words: run(folder, *words, **reach), COMMANDS.values())
        return dict(zip(COMMANDS, done, strict=True))


def test_tools_lists_what_the_key_may_call(said: Mapping[str, Done]) -> None:
    tools = {tool["name"]: tool for tool in json.loads(said["tools"].stdout)}
    assert {"core_ping", "plain_echo", "strict_double"} <= set(tools)
    assert tools["plain_echo"]["_meta"]["gatehouse/id"] == "plain.echo"


def test_a_fault_keeps_its_data_and_is_a_line_on_standard_error_with_what_to_do(said: Mapping[str, Done]) -> None:
    error = json.loads(said["fault"].stdout)["error"]
    assert said["fault"].returncode == CALL_FAILED
    assert (error["code"], error["data"]["kind"]) == (409, "illegal_state")
    assert error["data"]["details"] == {"lid": "open"}
    assert said["fault"].stderr.splitlines() == [
        "gatehouse: Close the lid first. (code 409)",
        "gatehouse: Call close_lid.",
    ]


def test_a_refusal_of_a_tool_with_an_output_schema_has_the_error_object_in_its_meta(said: Mapping[str, Done]) -> None:
    result = json.loads(said["result"].stdout)
    error = result["_meta"]["gatehouse/error"]
    assert said["result"].returncode == CALL_FAILED
    assert result["isError"] is True
    assert error["kind"] == "invalid_input"
    assert (error["validation_path"], error["validation_rule"]) == ("input.number", "type")


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Done]:
    """Four that cannot start, each for its own reason."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("busy", "data", "file", "module")}
    (folders["data"] / ".gatehouse").write_text("not a folder")
    (folders["file"] / FILE).write_text("server:\n  port: 1\nbackends: {core: [\n")
    (folders["module"] / FILE).write_text("backends:\n  mine: {module: mine}\n")
    (folders["module"] / "mine.py").write_text("def server(:\n")
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(2) as two_at_a_time:
        port = str(other.getsockname()[1])

        def start(name: str, folder: Path) -> Done:
            return run(folder, "serve", "--port", port if name == "busy" else "0")

        return dict(zip(folders, two_at_a_time.map(start, folders, folders.values()), strict=True))


def one_line(done: Done, code: int = FAILED) -> str:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_a_busy_port_is_one_line_that_says_what_to_do(starts: Mapping[str, Done]) -> None:
    port = starts["busy"].args[-1]
    assert one_line(starts["busy"]).startswith(f"gatehouse: 127.0.0.1:{port} is in use; choose another with --port")


def test_a_data_folder_that_cannot_be_used_is_one_line_that_names_it(starts: Mapping[str, Done]) -> None:
    line = one_line(starts["data"])
    assert "/.gatehouse: " in line
    assert "belong to the gateway's user" in line


def test_a_file_that_is_no_yaml_is_one_line_with_its_place(starts: Mapping[str, Done]) -> None:
    assert one_line(starts["file"], BAD_SETTINGS).startswith(f"gatehouse: {FILE}:4:1: not valid YAML")


def test_a_module_that_cannot_be_loaded_is_one_line_that_names_its_entry(starts: Mapping[str, Done]) -> None:
    assert "backends.mine" in one_line(starts["module"], BAD_SETTINGS)
