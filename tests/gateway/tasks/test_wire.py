"""Progress and messages of a task are bounded; input requests have keys that are used once."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.contract import MODERN, ClientProfile, Json
from gateway.errors import Fault, Kind
from gateway.tasks.wire import MAX_MESSAGES, MAX_NOTES_BYTES, TaskNotes, TaskWire
from tests.gateway.fakes import a_call


class Inputs:
    """Answers each request with its own key."""

    is_detached = True

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def request_input(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        self.keys += requests
        return {key: {"key": key} for key in requests}


def _wire(inputs: Inputs, capabilities: Json) -> TaskWire:
    call = replace(a_call(), client=ClientProfile(MODERN, capabilities))
    return TaskWire(call, inputs, TaskNotes())


def test_only_the_last_messages_are_kept() -> None:
    notes = TaskNotes()
    for number in range(MAX_MESSAGES + 5):
        notes.add("notifications/message", {"level": "info", "data": number})
    kept = notes.take()["messages"]
    assert [each["data"] for each in kept] == list(range(5, MAX_MESSAGES + 5))


def test_messages_are_bounded_in_size() -> None:
    notes = TaskNotes()
    notes.add("notifications/message", {"data": "x" * MAX_NOTES_BYTES})
    assert notes.take()["messages"] == []
    for _ in range(20):
        notes.add("notifications/message", {"data": "x" * 5000})
    assert sum(len(each["data"]) for each in notes.take()["messages"]) <= MAX_NOTES_BYTES


def test_last_progress_is_the_status_message() -> None:
    notes = TaskNotes()
    notes.add("notifications/progress", {"progressToken": 1, "progress": 1, "total": 3})
    assert notes.status_message == "1 of 3"
    notes.add("notifications/progress", {"progressToken": 1, "progress": 2, "message": "linking"})
    assert (notes.status_message, notes.take()["progress"]) == ("linking", {"progress": 2, "message": "linking"})


async def test_key_of_an_input_request_is_used_once() -> None:
    inputs = Inputs()
    wire = _wire(inputs, {"elicitation": {}})
    request: Any = {"it": {"method": "elicitation/create", "params": {"mode": "form", "message": "?"}}}
    assert await wire.ask(request) == {"it": {"key": "it"}}
    assert await wire.ask(request) == {"it": {"key": "it-2"}}
    assert inputs.keys == ["it", "it-2"]


async def test_client_without_the_capability_is_not_asked() -> None:
    request: Any = {"it": {"method": "sampling/createMessage", "params": {}}}
    with pytest.raises(Fault) as raised:
        await _wire(Inputs(), {"elicitation": {}}).ask(request)
    assert raised.value.kind is Kind.UNSUPPORTED
