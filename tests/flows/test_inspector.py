"""The MCP Inspector's command line, in both eras."""

import json
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.flows.process import Served, run
from tests.peers import npm

Json = dict[str, Any]
Done = subprocess.CompletedProcess[str]

FAILED, TOOL_FAILED = 1, 5
COMMANDS = {
    "list": ("tools/list",),
    "echo": ("tools/call", "--tool-name", "plain_echo", "--tool-arg", "text=hello"),
    "soft": ("tools/call", "--tool-name", "soft_refuse"),
    "strict": ("tools/call", "--tool-name", "strict_refuse"),
}


@pytest.fixture(scope="module", params=["legacy", "modern"])
def results(request: pytest.FixtureRequest, served: Served) -> Mapping[str, Done]:
    """The result of each command."""
    program = npm.install_package(npm.INSPECTOR) / "node_modules" / ".bin" / "mcp-inspector"
    reach = ("--transport", "http", "--protocol-era", request.param, "--header", f"Authorization: Bearer {served.key}")

    def ask(question: tuple[str, ...]) -> Done:
        return subprocess.run(
            [str(npm.NODE), str(program), "--cli", served.url, *reach, "--format", "json", "--method", *question],
            env=npm.environment(MCP_INSPECTOR_SECRET_STORE="memory"),
            capture_output=True,
            text=True,
            timeout=60,
        )

    with ThreadPoolExecutor(2) as two_at_a_time:
        return dict(zip(COMMANDS, two_at_a_time.map(ask, COMMANDS.values()), strict=True))


def test_command_printed_by_connect_lists_the_tools(served: Served) -> None:
    line = run(served.folder, "connect", "inspector", "--url", served.url).stdout
    program = npm.install_package(npm.INSPECTOR) / "node_modules" / ".bin" / "mcp-inspector"
    # As printed, except npx, which would download the package again.
    line = line.replace("npx @modelcontextprotocol/inspector", f"'{npm.NODE}' '{program}'")
    env = npm.environment(MCP_INSPECTOR_SECRET_STORE="memory", GATEHOUSE_TOKEN=served.key)
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "plain_echo" in done.stdout


def test_inspector_lists_the_tools(results: Mapping[str, Done]) -> None:
    assert results["list"].returncode == 0, results["list"].stderr
    tools = json.loads(results["list"].stdout)["result"]["tools"]
    assert {"core_ping", "plain_echo", "strict_refuse"} <= {tool["name"] for tool in tools}


def test_inspector_calls_a_tool(results: Mapping[str, Done]) -> None:
    assert results["echo"].returncode == 0, results["echo"].stderr
    assert json.loads(results["echo"].stdout)["result"]["structuredContent"] == {"result": "hello"}


def test_a_failed_result_shows_the_whole_error_object(results: Mapping[str, Done]) -> None:
    assert results["soft"].returncode == TOOL_FAILED
    result = json.loads(results["soft"].stdout)["result"]
    error = result["structuredContent"]["error"]
    assert (error["kind"], error["code"], error["origin"]) == ("illegal_state", "WRONG_ORDER", "soft")
    assert error["details"] == {"lid": "open"}
    assert result["content"] == [{"type": "text", "text": "Close the lid first."}]


def test_a_protocol_error_shows_its_message(results: Mapping[str, Done]) -> None:
    # The Inspector does not print the `data` of a JSON-RPC error; the tests of the SDK clients check it.
    assert results["strict"].returncode == FAILED
    assert json.loads(results["strict"].stderr)["error"]["message"] == "Close the lid first."
