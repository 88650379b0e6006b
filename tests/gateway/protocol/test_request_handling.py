"""Request handling: every failure becomes a response."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import Call, Json, Manifest, McpHttpRequest, Result
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.messages import Message
from gateway.protocol.request_handling import InboundRequest, RequestOutcome, handle_request
from tests.gateway.fakes import FakeBackend, a_call, a_route


class FakeEra:
    """An era with the `prepare` and `finalize` functions of the test."""

    def __init__(self, prepare: Any, finalize: Any) -> None:
        self.prepare = prepare
        self.finalize = finalize

    def refusal_handler(self, reason: Exception) -> Any:
        return raising(reason)


async def handle(
    handler: Any, *, finalize: Any = lambda call, result: result, prepare: Any = None, **more: Any
) -> RequestOutcome:
    route, call = more.pop("route", a_route()), a_call()
    request = McpHttpRequest("POST", "/mcp", {}, None, b"{}", call.caller)
    view: Any = None
    message = Message("request", 1, "tools/call", {})
    inbound = InboundRequest(request, view, message, call.client, call.wire, call.id, {})
    return await handle_request(inbound, handler, FakeEra(prepare or (lambda _: (route, {}, None)), finalize))


def raising(exc: Exception) -> Any:
    async def handler(call: Call) -> Result:
        raise exc

    return handler


async def test_result_is_finalized_and_encoded() -> None:
    async def handler(call: Call) -> Result:
        return {"a": 1}

    outcome = await handle(handler, finalize=lambda call, result: {**result, "b": 2})
    assert json.loads(outcome.body) == {"jsonrpc": "2.0", "id": 1, "result": {"a": 1, "b": 2}}
    assert (outcome.code, outcome.headers) == (None, ())


async def test_encoded_result_is_not_changed() -> None:
    async def handler(call: Call) -> Result:
        return b'{"a":  1}'

    assert (await handle(handler)).body == b'{"jsonrpc":"2.0","id":1,"result":{"a":  1}}'


async def test_retry_after_of_a_fault_becomes_a_header() -> None:
    outcome = await handle(raising(Fault(Kind.RATE_LIMITED, "Slow.", retry_after=2.6)))
    assert outcome.headers == ((b"retry-after", b"3"),)
    assert (await handle(raising(Fault(Kind.RATE_LIMITED, "Slow.", retry_after=0.1)))).headers == (
        (b"retry-after", b"1"),
    )


async def test_an_exception_becomes_an_internal_fault_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    outcome = await handle(raising(ValueError("/etc/secret")), route=None)
    error = json.loads(outcome.body)["error"]
    assert (outcome.code, error["data"]["kind"]) == (-32603, "internal")
    assert b"secret" not in outcome.body
    assert "/etc/secret" in caplog.text
    assert vars(caplog.records[0])["correlation_id"] == "cid"


@pytest.mark.parametrize("exc", [Fault(Kind.INVALID_INPUT, "x"), ForeignError(-32602, "x"), KeyError("x")])
async def test_failure_during_preparation_is_answered(exc: Exception) -> None:
    def prepare(inbound: InboundRequest) -> Any:
        raise exc

    async def handler(call: Call) -> Result:
        raise AssertionError

    assert "error" in json.loads((await handle(handler, prepare=prepare)).body)


async def test_failure_during_finalization_is_answered() -> None:
    async def handler(call: Call) -> Result:
        return {"a": 1}

    def finalize(call: Call, result: Json) -> Json:
        if "isError" not in result:
            raise ForeignError(-32021, "No.")
        return result

    assert (await handle(handler, finalize=finalize)).code == -32021


async def test_a_result_that_is_not_json_is_an_internal_fault() -> None:
    async def handler(call: Call) -> Result:
        return {"a": object()}

    assert b"internal" in (await handle(handler)).body


async def test_a_fault_whose_details_are_not_json_is_still_answered() -> None:
    outcome = await handle(raising(Fault(Kind.NOT_FOUND, "No file.", details={"path": Path("x")})), route=None)
    assert json.loads(outcome.body)["error"]


async def test_failing_render_error_of_a_module_is_still_answered() -> None:
    def render_error(error: Json, tool: str, arguments: Json) -> Json:
        return {"run_id": arguments["run_id"]}

    route = a_route(FakeBackend(manifest=Manifest(render_error=render_error)))
    assert json.loads((await handle(raising(Fault(Kind.DENIED, "No.")), route=route)).body)
