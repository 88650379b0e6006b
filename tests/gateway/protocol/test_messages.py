"""Parsing of JSON-RPC requests, notifications and responses, and of invalid messages."""

from inspect import isclass
from typing import Any

import mcp_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gateway.protocol.messages import KNOWN_PARAMS, parse_message
from gateway.protocol.strict_json import InvalidJson

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.text(max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=3)
fuzzed = settings(deadline=None)


def rejected(**members: Any) -> InvalidJson:
    with pytest.raises(InvalidJson) as caught:
        parse_message(members)
    return caught.value


def test_requests_notifications_and_responses_are_distinguished() -> None:
    request = parse_message({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo"}})
    assert (request.kind, request.id, request.method, request.params) == ("request", 7, "tools/call", {"name": "echo"})
    notification = parse_message({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (notification.kind, notification.id, notification.params) == ("notification", None, {})
    answer = parse_message({"jsonrpc": "2.0", "id": "a", "result": {"x": 1}})
    assert (answer.kind, answer.id, answer.result, answer.error) == ("response", "a", {"x": 1}, None)
    failure = parse_message({"jsonrpc": "2.0", "id": "a", "error": {"code": -1, "message": "no"}})
    assert (failure.kind, failure.result, failure.error) == ("response", None, {"code": -1, "message": "no"})


@pytest.mark.parametrize("id", [0, -1, 2**63 - 1, -(2**63), "", "a", "é", "x" * 256])
def test_strings_and_64_bit_integers_are_ids(id: str | int) -> None:
    assert parse_message({"jsonrpc": "2.0", "id": id, "method": "ping"}).id == id


@pytest.mark.parametrize("id", [None, True, False, 1.0, 1.5, 2**63, -(2**63) - 1, "x" * 257, [], {}])
def test_other_values_are_not_valid_ids(id: Any) -> None:
    error = rejected(jsonrpc="2.0", id=id, method="ping")
    assert (error.code, error.id) == (-32600, None)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"jsonrpc": "1.0", "method": "ping"},
        {"jsonrpc": 2.0, "method": "ping"},
        {"method": "ping"},
        {"jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "method": None},
        {"jsonrpc": "2.0", "method": 1},
        {"jsonrpc": "2.0", "method": "ping", "params": []},
        {"jsonrpc": "2.0", "method": "ping", "params": None},
        {"jsonrpc": "2.0", "method": "ping", "params": "x"},
        {"jsonrpc": "2.0", "method": "ping", "result": {}},
        {"jsonrpc": "2.0", "method": "ping", "error": {"code": 1, "message": ""}},
        {"jsonrpc": "2.0", "result": {}, "error": {"code": 1, "message": ""}},
        {"jsonrpc": "2.0", "result": []},
        {"jsonrpc": "2.0", "result": {}, "params": {}},
        {"jsonrpc": "2.0", "error": "no"},
        {"jsonrpc": "2.0", "error": {"code": True, "message": ""}},
        {"jsonrpc": "2.0", "error": {"code": 1}},
    ],
    ids=str,
)
def test_invalid_json_rpc_is_rejected_with_its_id(members: dict[str, Any]) -> None:
    error = rejected(**members, id="me")
    assert (error.code, error.id) == (-32600, "me")


def test_response_without_an_id_is_rejected() -> None:
    assert rejected(jsonrpc="2.0", result={}).code == -32600


def test_unknown_member_is_accepted() -> None:
    assert parse_message({"jsonrpc": "2.0", "id": 1, "method": "x", "extra": 1, "params": {"own": 1}}).params == {
        "own": 1
    }


@pytest.mark.parametrize("name", ["Method", "PARAMS", "ID", "Jsonrpc", "Result", "ERROR", "paramſ"])
def test_threat_15_an_envelope_member_in_other_case_is_refused(name: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ok"}, name: "secret"}
    assert rejected(**body).code == -32600


@pytest.mark.parametrize("name", ["Name", "NAME", "Arguments", "argumentſ", "_META", "URI", "requeststate"])
def test_threat_15_a_param_in_other_case_is_refused_with_or_without_the_right_one(name: str) -> None:
    for params in ({name: "secret"}, {"name": "ok", "arguments": {"a": 1}, name: "secret"}):
        error = rejected(jsonrpc="2.0", id=1, method="tools/call", params=params)
        assert (error.code, error.id) == (-32600, 1)


def test_threat_15_arguments_may_differ_only_in_case() -> None:
    params = {"name": "ok", "arguments": {"Name": 1, "name": 2}}
    assert parse_message({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).params == params


def test_every_param_of_the_sdk_models_is_known() -> None:
    from_client = (
        *(
            "CallTool",
            "CancelTask",
            "Complete",
            "GetPrompt",
            "GetTask",
            "GetTaskPayload",
            "Initialize",
            "InputResponse",
        ),
        *("Paginated", "ReadResource", "SetLevel", "Subscribe", "SubscriptionsListen", "Unsubscribe"),
    )
    names = {f"{name}RequestParams" for name in from_client} | {
        "CancelledNotificationParams",
        "ProgressNotificationParams",
    }
    models = {name: model for name, model in vars(mcp_types).items() if name in names and isclass(model)}
    assert models.keys() == names
    for model in models.values():
        assert issubclass(model, BaseModel)
        assert {field.alias or name for name, field in model.model_fields.items()} <= KNOWN_PARAMS


members = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": st.integers() | names | scalars,
        "method": names | scalars,
        "params": objects | scalars,
        "result": objects | scalars,
        "error": st.fixed_dictionaries({"code": st.integers(), "message": names}) | scalars,
    },
)


@fuzzed
@given(members)
def test_any_object_is_parsed_completely_or_rejected(body: dict[str, Any]) -> None:
    try:
        read = parse_message(body)
    except InvalidJson:
        return
    parsed = {"id": read.id, "result": read.result, "error": read.error}
    assert {name: value for name, value in parsed.items() if value is not None} == {
        name: value for name, value in body.items() if name in parsed
    }
    assert read.method == body.get("method", "")
    assert read.params == body.get("params", {})
    assert read.kind == ("response" if "method" not in body else "request" if "id" in body else "notification")
