"""Checks of the parameters of each method."""

from typing import Any

import pytest

from gateway.errors import Fault, Kind
from gateway.protocol.messages import LOG_LEVELS, MAX_CHARS, MAX_URIS, check_log_level, check_params, is_level_enabled


def rejected_param(method: str, params: Any) -> str | None:
    try:
        check_params(method, params)
    except Fault as fault:
        path = fault.details["validation_path"].removeprefix("params.")
        return path if fault.kind is Kind.INVALID_INPUT else f"{fault.kind}: {path}"
    return None


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("tools/call", {"name": "x"}, None),
        ("tools/call", {"name": "x", "arguments": {"a": [1]}}, None),
        ("tools/call", {"name": "x", "arguments": None}, None),
        ("tools/call", {}, "name"),
        ("tools/call", {"name": ""}, "name"),
        ("tools/call", {"name": 7}, "name"),
        ("tools/call", {"name": "x", "arguments": []}, "arguments"),
        ("tools/call", {"name": "x", "arguments": "{}"}, "arguments"),
        ("tools/call", {"name": "x", "requestState": 7}, "requestState"),
        ("tools/call", {"name": "x", "inputResponses": []}, "inputResponses"),
        ("tools/call", {"name": "x", "inputResponses": {"a": 1}}, "inputResponses"),
        ("tools/call", {"name": "x", "inputResponses": {"a": {}}}, None),
        ("prompts/get", {"name": "x", "arguments": {"a": "1"}}, None),
        ("prompts/get", {"name": "x", "arguments": {"a": 1}}, "arguments"),
        ("resources/read", {"uri": "x:y"}, None),
        ("resources/read", {"uri": None}, "uri"),
        ("resources/subscribe", {}, "uri"),
        ("resources/unsubscribe", {"uri": {}}, "uri"),
        ("completion/complete", {"ref": {}, "argument": {}}, None),
        ("completion/complete", {"argument": {}}, "ref"),
        ("completion/complete", {"ref": {}, "argument": "x"}, "argument"),
        ("subscriptions/listen", {}, "notifications"),
        ("logging/setLevel", {}, "level"),
        ("initialize", {"protocolVersion": "x", "capabilities": {}}, None),
        ("initialize", {"protocolVersion": "x"}, "capabilities"),
        ("tools/list", {}, None),
        ("tools/list", {"cursor": 7}, "cursor"),
        ("ping", {"anything": 1}, None),
        ("ping", {"_meta": 7}, "_meta"),
        ("ping", {"_meta": {"progressToken": 7}}, None),
        ("ping", {"_meta": {"progressToken": True}}, "_meta.progressToken"),
        ("ping", {"_meta": {"progressToken": 1.5}}, "_meta.progressToken"),
        ("ping", {"_meta": {"progressToken": []}}, "_meta.progressToken"),
    ],
)  # fmt: skip
def test_parameter_of_a_wrong_type_is_named(method: str, params: Any, path: str | None) -> None:
    assert rejected_param(method, params) == path


FULL = "x" * MAX_CHARS


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("tools/call", {"name": FULL}, None),
        ("tools/call", {"name": FULL + "x"}, "name"),
        ("tools/call", {"name": "x", "requestState": FULL + "x"}, None),
        ("prompts/get", {"name": FULL + "x"}, "name"),
        ("resources/read", {"uri": FULL}, None),
        ("resources/read", {"uri": FULL + "x"}, "uri"),
        ("resources/subscribe", {"uri": FULL + "x"}, "uri"),
        ("resources/unsubscribe", {"uri": FULL + "x"}, "uri"),
        ("completion/complete", {"ref": {"uri": FULL, "name": FULL}, "argument": {"name": FULL}}, None),
        ("completion/complete", {"ref": {}, "argument": {"value": FULL + "x"}}, None),
        ("completion/complete", {"ref": {"uri": FULL + "x"}, "argument": {}}, "ref.uri"),
        ("completion/complete", {"ref": {"name": FULL + "x"}, "argument": {}}, "ref.name"),
        ("completion/complete", {"ref": {"uri": 7}, "argument": {}}, "ref.uri"),
        ("completion/complete", {"ref": {}, "argument": {"name": FULL + "x"}}, "argument.name"),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": [FULL] * MAX_URIS}}, None),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["x", FULL + "x"]}},
         "notifications.resourceSubscriptions"),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["x"] * (MAX_URIS + 1)}},
         "notifications.resourceSubscriptions"),
        ("tools/list", {"cursor": FULL + "x"}, "cursor"),
        ("ping", {"_meta": {"progressToken": FULL}}, None),
        ("ping", {"_meta": {"progressToken": FULL + "x"}}, "_meta.progressToken"),
    ],
)  # fmt: skip
def test_parameter_above_the_maximum_length_is_rejected(method: str, params: Any, path: str | None) -> None:
    assert rejected_param(method, params) == path


@pytest.mark.parametrize("value", ["x", [1], 7])
def test_input_responses_of_other_methods_do_not_break_the_check(value: Any) -> None:
    assert rejected_param("tools/list", {"inputResponses": value}) in (None, "inputResponses")


def test_log_level_enables_itself_and_all_more_severe_levels() -> None:
    for at, level in enumerate(LOG_LEVELS):
        assert check_log_level(level) == level
        assert [is_level_enabled(each, level) for each in LOG_LEVELS] == [False] * at + [True] * (len(LOG_LEVELS) - at)


@pytest.mark.parametrize("level", ["loud", "", None, 7, ["info"], "INFO"])
def test_unknown_log_level_is_rejected_and_never_enabled(level: Any) -> None:
    assert not is_level_enabled(level, "debug")
    with pytest.raises(Fault):
        check_log_level(level)
