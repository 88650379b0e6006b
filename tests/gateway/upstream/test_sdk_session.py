"""The SDK session of a handler, over the wire of one call."""

from typing import Any

import pytest
from mcp import MCPError
from mcp.shared.exceptions import NoBackChannelError

from gateway.contract import ClientProfile, Json, ListChange
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.sdk_session import CallChannel, SdkSession, StandaloneChannel
from tests.gateway.fakes import FakeWire, a_call

HANDSHAKE = ClientProfile("2025-11-25", {"elicitation": {}, "roots": {}}, {"name": "c", "version": "1"}, session="s")


class FailingWire(FakeWire):
    def __init__(self, exc: Exception) -> None:
        super().__init__()
        self.exc = exc

    async def ask(self, requests: Any) -> dict[str, Json]:
        raise self.exc


def recording_channel() -> tuple[list[ListChange], StandaloneChannel]:
    changes: list[ListChange] = []
    return changes, StandaloneChannel(changes.append)


def make_session(call: Any) -> SdkSession:
    return SdkSession(call, recording_channel()[1], call.meta if call else None)


async def test_elicitation_is_sent_over_the_wire_and_returns_the_answer() -> None:
    wire = FakeWire({"elicitation/create": {"action": "accept", "content": {"a": 1}}})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    answer = await make_session(a_call(client=HANDSHAKE, wire=wire)).elicit_form("?", schema, related_request_id=1)
    assert (answer.action, answer.content) == ("accept", {"a": 1})
    assert [next(iter(each.values()))["method"] for each in wire.requests] == ["elicitation/create"]


async def test_handler_can_list_the_clients_roots() -> None:
    wire = FakeWire({"roots/list": {"roots": [{"uri": "file:///x"}]}})
    answer = await make_session(a_call(client=HANDSHAKE, wire=wire)).list_roots()
    assert str(answer.roots[0].uri) == "file:///x"


async def test_error_of_the_client_is_raised_as_mcp_error() -> None:
    channel = CallChannel(
        a_call(client=HANDSHAKE, wire=FailingWire(ForeignError(-1, "no", {"a": 1}))), recording_channel()[1]
    )
    with pytest.raises(MCPError) as rejected:
        await channel.send_raw_request("roots/list", {})
    assert (rejected.value.error.code, rejected.value.error.message, rejected.value.error.data) == (-1, "no", {"a": 1})


async def test_fault_during_a_client_request_is_kept_as_the_cause() -> None:
    fault = Fault(Kind.UNSUPPORTED, "It cannot.")
    channel = CallChannel(a_call(client=HANDSHAKE, wire=FailingWire(fault)), recording_channel()[1])
    with pytest.raises(MCPError) as rejected:
        await channel.send_raw_request("roots/list", {})
    assert (rejected.value.error.code, rejected.value.__cause__) == (-32041, fault)


async def test_client_requests_are_rejected_without_a_call() -> None:
    changes, standalone = recording_channel()
    channel = CallChannel(None, standalone)
    assert not channel.can_send_request
    for each_channel in (channel, standalone):
        with pytest.raises(NoBackChannelError):
            await each_channel.send_raw_request("roots/list", {})
    await channel.notify("notifications/message", {"level": "info", "data": "x"})
    assert changes == []


@pytest.mark.parametrize(
    ("method", "params", "change"),
    [
        ("notifications/tools/list_changed", None, ListChange("tools")),
        ("notifications/prompts/list_changed", {}, ListChange("prompts")),
        ("notifications/resources/list_changed", {}, ListChange("resources")),
        ("notifications/resources/updated", {"uri": "x:y"}, ListChange("resource", "x:y")),
    ],
)
async def test_changes_go_to_the_gateway_and_not_to_the_client_of_the_call(
    method: str, params: Json | None, change: ListChange
) -> None:
    changes, standalone = recording_channel()
    wire = FakeWire()
    await CallChannel(a_call(wire=wire), standalone).notify(method, params)
    assert changes == [change]
    assert wire.notifications == []


async def test_progress_uses_the_callers_token_and_is_dropped_without_one() -> None:
    wire = FakeWire()
    channel = CallChannel(a_call(params={"_meta": {"progressToken": 0}}, wire=wire), recording_channel()[1])
    await channel.progress(1)
    await channel.progress(2, 4, "half")
    assert [params for _, params in wire.notifications] == [
        {"progressToken": 0, "progress": 1},
        {"progressToken": 0, "progress": 2, "total": 4, "message": "half"},
    ]
    await CallChannel(a_call(params={}, wire=wire), recording_channel()[1]).progress(3)
    assert len(wire.notifications) == 2


def test_session_describes_the_client_of_its_call() -> None:
    sdk_session = make_session(a_call(client=HANDSHAKE))
    assert sdk_session.protocol_version == "2025-11-25"
    assert sdk_session.client_capabilities is not None
    assert sdk_session.client_capabilities.elicitation is not None
    assert sdk_session.client_params is not None
    assert sdk_session.client_params.client_info.name == "c"


@pytest.mark.parametrize(
    ("capabilities", "info"), [({"elicitation": 7}, None), ({}, {"name": 7}), ({}, "curl"), ({"sampling": []}, [])]
)
def test_malformed_client_description_is_ignored(capabilities: Any, info: Any) -> None:
    sdk_session = make_session(a_call(client=ClientProfile("2025-11-25", capabilities, info)))
    assert sdk_session.client_params is None


def test_unknown_session_attribute_raises_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = make_session(a_call()).no_such_thing  # type: ignore[attr-defined]
