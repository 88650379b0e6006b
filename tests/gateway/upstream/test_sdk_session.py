"""What a handler gets as its session: the SDK's idea of a client, over the wire of one call."""

from typing import Any

import pytest
from mcp import MCPError
from mcp.shared.exceptions import NoBackChannelError

from gateway.contract import ClientProfile, Json, ListChange
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.sdk_session import CallChannel, SdkSession, StandaloneChannel
from tests.gateway.fakes import FakeWire, a_call

OLD = ClientProfile("2025-11-25", {"elicitation": {}, "roots": {}}, {"name": "c", "version": "1"}, session="s")


class Refusing(FakeWire):
    def __init__(self, exc: Exception) -> None:
        super().__init__()
        self.exc = exc

    async def ask(self, requests: Any) -> dict[str, Json]:
        raise self.exc


def heard() -> tuple[list[ListChange], StandaloneChannel]:
    changes: list[ListChange] = []
    return changes, StandaloneChannel(changes.append)


def session(call: Any) -> SdkSession:
    return SdkSession(call, heard()[1], call.meta if call else None)


async def test_a_question_goes_to_the_wire_and_its_answer_comes_back() -> None:
    wire = FakeWire({"elicitation/create": {"action": "accept", "content": {"a": 1}}})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    answer = await session(a_call(client=OLD, wire=wire)).elicit_form("?", schema, related_request_id=1)
    assert (answer.action, answer.content) == ("accept", {"a": 1})
    assert [next(iter(each.values()))["method"] for each in wire.asked] == ["elicitation/create"]


async def test_a_handler_may_list_the_clients_roots() -> None:
    wire = FakeWire({"roots/list": {"roots": [{"uri": "file:///x"}]}})
    answer = await session(a_call(client=OLD, wire=wire)).list_roots()
    assert str(answer.roots[0].uri) == "file:///x"


async def test_a_clients_refusal_is_the_sdks_own_error() -> None:
    channel = CallChannel(a_call(client=OLD, wire=Refusing(ForeignError(-1, "no", {"a": 1}))), heard()[1])
    with pytest.raises(MCPError) as refused:
        await channel.send_raw_request("roots/list", {})
    assert (refused.value.error.code, refused.value.error.message, refused.value.error.data) == (-1, "no", {"a": 1})


async def test_a_fault_while_asking_is_kept_as_the_cause() -> None:
    fault = Fault(Kind.UNSUPPORTED, "It cannot.")
    channel = CallChannel(a_call(client=OLD, wire=Refusing(fault)), heard()[1])
    with pytest.raises(MCPError) as refused:
        await channel.send_raw_request("roots/list", {})
    assert (refused.value.error.code, refused.value.__cause__) == (-32041, fault)


async def test_without_a_call_nobody_can_be_asked() -> None:
    changes, standalone = heard()
    channel = CallChannel(None, standalone)
    assert not channel.can_send_request
    for way in (channel, standalone):
        with pytest.raises(NoBackChannelError):
            await way.send_raw_request("roots/list", {})
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
async def test_changes_are_heard_by_the_house_and_not_told_to_the_one_client(
    method: str, params: Json | None, change: ListChange
) -> None:
    changes, standalone = heard()
    wire = FakeWire()
    await CallChannel(a_call(wire=wire), standalone).notify(method, params)
    assert changes == [change]
    assert wire.said == []


async def test_progress_carries_the_callers_own_token_and_is_silent_without_one() -> None:
    wire = FakeWire()
    channel = CallChannel(a_call(params={"_meta": {"progressToken": 0}}, wire=wire), heard()[1])
    await channel.progress(1)
    await channel.progress(2, 4, "half")
    assert [params for _, params in wire.said] == [
        {"progressToken": 0, "progress": 1},
        {"progressToken": 0, "progress": 2, "total": 4, "message": "half"},
    ]
    await CallChannel(a_call(params={}, wire=wire), heard()[1]).progress(3)
    assert len(wire.said) == 2


def test_a_session_knows_the_client_of_its_call() -> None:
    seen = session(a_call(client=OLD))
    assert seen.protocol_version == "2025-11-25"
    assert seen.client_capabilities is not None
    assert seen.client_capabilities.elicitation is not None
    assert seen.client_params is not None
    assert seen.client_params.client_info.name == "c"


@pytest.mark.parametrize(
    ("capabilities", "info"), [({"elicitation": 7}, None), ({}, {"name": 7}), ({}, "curl"), ({"sampling": []}, [])]
)
def test_a_client_that_describes_itself_badly_is_served_all_the_same(capabilities: Any, info: Any) -> None:
    seen = session(a_call(client=ClientProfile("2025-11-25", capabilities, info)))
    assert seen.client_params is None


def test_what_a_session_does_not_have_it_says_so() -> None:
    with pytest.raises(AttributeError):
        _ = session(a_call()).no_such_thing  # type: ignore[attr-defined]
