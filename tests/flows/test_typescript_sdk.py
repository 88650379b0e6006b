"""The TypeScript SDK's v1 and v2 clients run a complete journey through the gateway."""

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
def journey(request: pytest.FixtureRequest, served: Served) -> Json:
    """The observations of the client; `era` is the protocol revision it should use."""
    script, package, more, era = PEERS[request.param]
    command = [str(npm.NODE), str(SCRIPTS / script), str(npm.install_package(package)), served.url, served.key, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "era": era}


def test_client_negotiates_its_own_protocol_revision(journey: Json) -> None:
    assert journey["version"] == journey["era"]
    assert journey["server"]["name"] == "gatehouse"


def test_client_lists_the_tools_of_every_backend(journey: Json) -> None:
    tools = {tool["name"]: tool for tool in journey["tools"]}
    assert {"core_ping", "plain_echo", "plain_greet", "strict_double", "strict_refuse"} <= set(tools)
    assert tools["plain_echo"]["inputSchema"]["properties"]["text"]["type"] == "string"


def test_client_gets_text_and_structured_content_of_a_call(journey: Json) -> None:
    assert journey["echo"]["content"] == [{"type": "text", "text": "grüße"}]
    assert journey["echo"]["structuredContent"] == {"result": "grüße"}


def test_client_gets_every_progress_notification(journey: Json) -> None:
    assert journey["progress"] == [{"progress": step, "total": 3, "message": f"step {step}"} for step in (1, 2, 3)]
    assert journey["count"]["content"][0]["text"] == "counted to 3"


def test_client_answers_one_elicitation_and_the_tool_gets_the_answer(journey: Json) -> None:
    assert journey["asked"] == ["What is your name?"]
    assert journey["greet"]["content"][0]["text"] == "Hello, Ada."


def test_failure_of_a_plain_tool_is_a_result_without_the_exception_message(journey: Json) -> None:
    assert journey["fail"]["isError"] is True
    assert "secret words" not in json.dumps(journey)


def test_a_fault_keeps_its_whole_error_object(journey: Json) -> None:
    error, data = journey["refuse"], journey["refuse"]["data"]
    assert error["code"] == (409 if journey["era"] == MODERN else -32043)
    assert error["message"].endswith("Close the lid first.")
    assert (data["kind"], data["code"], data["origin"]) == ("illegal_state", "WRONG_ORDER", "strict")
    assert data["details"] == {"lid": "open"}
    assert data["suggested_fix"] == "Call close_lid."
    assert data["correlation_id"]


def test_rejected_arguments_name_path_and_rule(journey: Json) -> None:
    assert journey["invalid"]["code"] == -32602
    data = journey["invalid"]["data"]
    assert (data["validation_path"], data["validation_rule"]) == ("input.number", "type")


def test_an_unknown_tool_is_an_error_with_its_object(journey: Json) -> None:
    assert journey["unknown"]["code"] == -32602
    assert journey["unknown"]["data"]["kind"] == "not_found"


def test_crash_uses_the_error_style_of_the_module(journey: Json) -> None:
    assert journey["crash"]["code"] == -32603
    assert journey["crash"]["data"]["kind"] == "internal"
    assert "swordfish" not in json.dumps(journey)
