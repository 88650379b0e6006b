"""Messages as tables: what is a request, a notification or an answer, and what is nothing."""

from inspect import isclass
from typing import Any

import mcp_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gateway.protocol.messages import PARAMS, message
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


def bad_message(**members: Any) -> InvalidJson:
    with pytest.raises(InvalidJson) as caught:
        message(members)
    return caught.value


def test_a_request_a_notification_and_both_answers_are_told_apart() -> None:
    request = message({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo"}})
    assert (request.kind, request.id, request.method, request.params) == ("request", 7, "tools/call", {"name": "echo"})
    notification = message({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (notification.kind, notification.id, notification.params) == ("notification", None, {})
    answer = message({"jsonrpc": "2.0", "id": "a", "result": {"x": 1}})
    assert (answer.kind, answer.id, answer.result, answer.error) == ("response", "a", {"x": 1}, None)
    failure = message({"jsonrpc": "2.0", "id": "a", "error": {"code": -1, "message": "no"}})
    assert (failure.kind, failure.result, failure.error) == ("response", None, {"code": -1, "message": "no"})


@pytest.mark.parametrize("id", [0, -1, 2**63 - 1, -(2**63), "", "a", "é", "x" * 256])
def test_strings_and_64_bit_integers_are_ids(id: str | int) -> None:
    assert message({"jsonrpc": "2.0", "id": id, "method": "ping"}).id == id


@pytest.mark.parametrize("id", [None, True, False, 1.0, 1.5, 2**63, -(2**63) - 1, "x" * 257, [], {}])
def test_nothing_else_is_an_id(id: Any) -> None:
    refused = bad_message(jsonrpc="2.0", id=id, method="ping")
    assert (refused.code, refused.id) == (-32600, None)


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
def test_what_is_not_json_rpc_is_an_invalid_request_that_keeps_its_id(members: dict[str, Any]) -> None:
    refused = bad_message(**members, id="me")
    assert (refused.code, refused.id) == (-32600, "me")


def test_a_response_without_an_id_answers_nothing() -> None:
    assert bad_message(jsonrpc="2.0", result={}).code == -32600


def test_a_member_that_no_revision_knows_is_let_through() -> None:
    assert message({"jsonrpc": "2.0", "id": 1, "method": "x", "extra": 1, "params": {"own": 1}}).params == {"own": 1}


@pytest.mark.parametrize("name", ["Method", "PARAMS", "ID", "Jsonrpc", "Result", "ERROR", "paramſ"])
def test_threat_15_an_envelope_member_in_other_case_is_refused(name: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ok"}, name: "secret"}
    assert bad_message(**body).code == -32600


@pytest.mark.parametrize("name", ["Name", "NAME", "Arguments", "argumentſ", "_META", "URI", "requeststate"])
def test_threat_15_a_param_in_other_case_is_refused_with_or_without_the_right_one(name: str) -> None:
    for params in ({name: "secret"}, {"name": "ok", "arguments": {"a": 1}, name: "secret"}):
        refused = bad_message(jsonrpc="2.0", id=1, method="tools/call", params=params)
        assert (refused.code, refused.id) == (-32600, 1)


def test_threat_15_case_is_free_inside_arguments() -> None:
    params = {"name": "ok", "arguments": {"Name": 1, "name": 2}}
    assert message({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).params == params


def test_every_param_a_client_may_send_is_known() -> None:
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
        assert {field.alias or name for name, field in model.model_fields.items()} <= PARAMS


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
def test_any_object_is_a_whole_message_or_a_refusal(body: dict[str, Any]) -> None:
    try:
        read = message(body)
    except InvalidJson:
        return
    kept = {"id": read.id, "result": read.result, "error": read.error}
    assert {name: value for name, value in kept.items() if value is not None} == {
        name: value for name, value in body.items() if name in kept
    }
    assert read.method == body.get("method", "")
    assert read.params == body.get("params", {})
    assert read.kind == ("response" if "method" not in body else "request" if "id" in body else "notification")
