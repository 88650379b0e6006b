"""The TypeScript SDK's clients, old and new, on a whole journey through the gateway."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.flows.process import HANDSHAKE, MODERN, Served
from tests.peers import npm

Json = dict[str, Any]

SCRIPTS = Path(npm.__file__).parent
PEERS = {
    "v1": ("journey_v1.mjs", npm.SDK, (), HANDSHAKE),
    "v2-handshake": ("journey_v2.mjs", npm.CLIENT, ("handshake",), HANDSHAKE),
    "v2-modern": ("journey_v2.mjs", npm.CLIENT, (MODERN,), MODERN),
}


@pytest.fixture(scope="module", params=PEERS)
def met(request: pytest.FixtureRequest, served: Served) -> Json:
    """What the client met on its way; `era` is the revision it should have spoken."""
    script, package, more, era = PEERS[request.param]
    command = [str(npm.NODE), str(SCRIPTS / script), str(npm.install_package(package)), served.url, served.key, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "era": era}


def test_it_meets_the_gateway_in_its_own_revision(met: Json) -> None:
    assert met["version"] == met["era"]
    assert met["server"]["name"] == "gatehouse"


def test_it_lists_the_tools_of_every_backend(met: Json) -> None:
    tools = {tool["name"]: tool for tool in met["tools"]}
    assert {"core_ping", "plain_echo", "plain_greet", "strict_double", "strict_refuse"} <= set(tools)
    assert tools["plain_echo"]["inputSchema"]["properties"]["text"]["type"] == "string"


def test_it_calls_a_tool_and_gets_text_and_structure(met: Json) -> None:
    assert met["echo"]["content"] == [{"type": "text", "text": "grüße"}]
    assert met["echo"]["structuredContent"] == {"result": "grüße"}


def test_it_hears_of_every_step_of_a_long_call(met: Json) -> None:
    assert met["progress"] == [{"progress": step, "total": 3, "message": f"step {step}"} for step in (1, 2, 3)]
    assert met["count"]["content"][0]["text"] == "counted to 3"


def test_it_is_asked_once_and_its_answer_reaches_the_tool(met: Json) -> None:
    assert met["asked"] == ["What is your name?"]
    assert met["greet"]["content"][0]["text"] == "Hello, Ada."


def test_a_plain_tools_failure_is_a_result_without_the_exceptions_words(met: Json) -> None:
    assert met["fail"]["isError"] is True
    assert "secret words" not in json.dumps(met)


def test_a_fault_keeps_its_whole_error_object(met: Json) -> None:
    error, data = met["refuse"], met["refuse"]["data"]
    assert error["code"] == (409 if met["era"] == MODERN else -32043)
    assert error["message"].endswith("Close the lid first.")
    assert (data["kind"], data["code"], data["origin"]) == ("illegal_state", "WRONG_ORDER", "strict")
    assert data["details"] == {"lid": "open"}
    assert data["suggested_fix"] == "Call close_lid."
    assert data["correlation_id"]


def test_refused_arguments_say_where_and_why(met: Json) -> None:
    assert met["invalid"]["code"] == -32602
    data = met["invalid"]["data"]
    assert (data["validation_path"], data["validation_rule"]) == ("input.number", "type")


def test_an_unknown_tool_is_an_error_with_its_object(met: Json) -> None:
    assert met["unknown"]["code"] == -32602
    assert met["unknown"]["data"]["kind"] == "not_found"


def test_a_crash_takes_the_form_that_the_module_chose(met: Json) -> None:
    assert met["crash"]["code"] == -32603
    assert met["crash"]["data"]["kind"] == "internal"
    assert "swordfish" not in json.dumps(met)
