"""One request and its answer: whatever goes wrong, there is one."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import Call, Json, Manifest, McpHttpRequest, Result
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.messages import Message
from gateway.protocol.request_handling import InboundRequest, RequestOutcome, handle_request
from tests.gateway.fakes import FakeBackend, a_call, a_route


class Plain:
    """An era that changes nothing, but for what a test puts in place of its own."""

    def __init__(self, prepare: Any, finish: Any) -> None:
        self.prepared = prepare
        self.finished = finish

    def refused(self, reason: Exception) -> Any:
        return raising(reason)


async def turn(
    end: Any, *, finish: Any = lambda call, result: result, prepare: Any = None, **more: Any
) -> RequestOutcome:
    route, call = more.pop("route", a_route()), a_call()
    inbound = McpHttpRequest("POST", "/mcp", {}, None, b"{}", call.caller)
    view: Any = None
    asked = Message("request", 1, "tools/call", {})
    given = InboundRequest(inbound, view, asked, call.client, call.wire, call.id, {})
    return await handle_request(given, end, Plain(prepare or (lambda _: (route, {}, None)), finish))


def raising(exc: Exception) -> Any:
    async def end(call: Call) -> Result:
        raise exc

    return end


async def test_a_result_is_finished_and_encoded() -> None:
    async def end(call: Call) -> Result:
        return {"a": 1}

    outcome = await turn(end, finish=lambda call, result: {**result, "b": 2})
    assert json.loads(outcome.body) == {"jsonrpc": "2.0", "id": 1, "result": {"a": 1, "b": 2}}
    assert (outcome.code, outcome.headers) == (None, ())


async def test_bytes_pass_as_they_are() -> None:
    async def end(call: Call) -> Result:
        return b'{"a":  1}'

    assert (await turn(end)).body == b'{"jsonrpc":"2.0","id":1,"result":{"a":  1}}'


async def test_a_fault_says_when_to_come_back_in_a_header() -> None:
    outcome = await turn(raising(Fault(Kind.RATE_LIMITED, "Slow.", retry_after=2.6)))
    assert outcome.headers == ((b"retry-after", b"3"),)
    assert (await turn(raising(Fault(Kind.RATE_LIMITED, "Slow.", retry_after=0.1)))).headers == (
        (b"retry-after", b"1"),
    )


async def test_an_exception_becomes_an_internal_fault_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    outcome = await turn(raising(ValueError("/etc/secret")), route=None)
    error = json.loads(outcome.body)["error"]
    assert (outcome.code, error["data"]["kind"]) == (-32603, "internal")
    assert b"secret" not in outcome.body
    assert "/etc/secret" in caplog.text
    assert caplog.records[0].correlation_id == "cid"


@pytest.mark.parametrize("exc", [Fault(Kind.INVALID_INPUT, "x"), ForeignError(-32602, "x"), KeyError("x")])
async def test_what_fails_while_the_call_is_prepared_is_answered_too(exc: Exception) -> None:
    def prepare(given: InboundRequest) -> Any:
        raise exc

    async def end(call: Call) -> Result:
        raise AssertionError

    assert "error" in json.loads((await turn(end, prepare=prepare)).body)


async def test_what_fails_while_the_result_is_finished_is_answered_too() -> None:
    async def end(call: Call) -> Result:
        return {"a": 1}

    def finish(call: Call, result: Json) -> Json:
        if "isError" not in result:
            raise ForeignError(-32021, "No.")
        return result

    assert (await turn(end, finish=finish)).code == -32021


async def test_a_result_that_is_not_json_is_an_internal_fault() -> None:
    async def end(call: Call) -> Result:
        return {"a": object()}

    assert b"internal" in (await turn(end)).body


async def test_a_fault_whose_details_are_not_json_is_still_answered() -> None:
    outcome = await turn(raising(Fault(Kind.NOT_FOUND, "No file.", details={"path": Path("x")})), route=None)
    assert json.loads(outcome.body)["error"]


async def test_a_module_that_cannot_dress_its_fault_is_still_answered() -> None:
    def dress(error: Json, tool: str, arguments: Json) -> Json:
        return {"run_id": arguments["run_id"]}

    route = a_route(FakeBackend(manifest=Manifest(render_error=dress)))
    assert json.loads((await turn(raising(Fault(Kind.DENIED, "No.")), route=route)).body)
