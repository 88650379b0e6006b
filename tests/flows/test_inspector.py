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
QUESTIONS = {
    "list": ("tools/list",),
    "echo": ("tools/call", "--tool-name", "plain_echo", "--tool-arg", "text=hello"),
    "soft": ("tools/call", "--tool-name", "soft_refuse"),
    "strict": ("tools/call", "--tool-name", "strict_refuse"),
}


@pytest.fixture(scope="module", params=["legacy", "modern"])
def said(request: pytest.FixtureRequest, served: Served) -> Mapping[str, Done]:
    """Its answer to each of the questions."""
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
        return dict(zip(QUESTIONS, two_at_a_time.map(ask, QUESTIONS.values()), strict=True))


def test_the_line_that_connect_prints_lists_the_tools(served: Served) -> None:
    line = run(served.folder, "connect", "inspector", "--url", served.url).stdout
    program = npm.install_package(npm.INSPECTOR) / "node_modules" / ".bin" / "mcp-inspector"
    # As printed, but for npx, which would fetch what is here.
    line = line.replace("npx @modelcontextprotocol/inspector", f"'{npm.NODE}' '{program}'")
    env = npm.environment(MCP_INSPECTOR_SECRET_STORE="memory", GATEHOUSE_TOKEN=served.key)
    ended = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "plain_echo" in ended.stdout


def test_it_lists_the_tools(said: Mapping[str, Done]) -> None:
    assert said["list"].returncode == 0, said["list"].stderr
    tools = json.loads(said["list"].stdout)["result"]["tools"]
    assert {"core_ping", "plain_echo", "strict_refuse"} <= {tool["name"] for tool in tools}


def test_it_calls_a_tool(said: Mapping[str, Done]) -> None:
    assert said["echo"].returncode == 0, said["echo"].stderr
    assert json.loads(said["echo"].stdout)["result"]["structuredContent"] == {"result": "hello"}


def test_a_failed_result_shows_the_whole_error_object(said: Mapping[str, Done]) -> None:
    assert said["soft"].returncode == TOOL_FAILED
    result = json.loads(said["soft"].stdout)["result"]
    error = result["structuredContent"]["error"]
    assert (error["kind"], error["code"], error["origin"]) == ("illegal_state", "WRONG_ORDER", "soft")
    assert error["details"] == {"lid": "open"}
    assert result["content"] == [{"type": "text", "text": "Close the lid first."}]


def test_a_protocol_error_shows_its_message(said: Mapping[str, Done]) -> None:
    # The Inspector itself prints no `data` of a JSON-RPC error; the SDK clients' tests see that it arrives.
    assert said["strict"].returncode == FAILED
    assert json.loads(said["strict"].stderr)["error"]["message"] == "Close the lid first."
