"""The log line of a finished call."""

from base64 import b64encode

import pytest

from gateway.contract import Call, Caller, Json
from gateway.contract.trace_position import TracePosition
from gateway.telemetry.call_telemetry import CallLog
from tests.gateway.fakes import FakeBackend, Rig, a_call, a_route
from tests.gateway.telemetry.test_log import HOSTILE, KEY, parsed


def line(call: Call, form: str = "json") -> str:
    lines: list[str] = []
    CallLog(lines.append, form).record(call)
    (written,) = lines
    return written


def test_line_contains_caller_target_and_outcome() -> None:
    call = a_call()
    call.record.position = TracePosition("a" * 32, "b" * 16)
    call.record.outcome, call.record.decision = "denied", "deny"
    fields = parsed(line(call))
    ms = fields.pop("ms")
    assert isinstance(ms, float)
    assert ms >= 0
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "info",
        "message": "call",
        "method": "tools/call",
        "target": "lab.echo",
        "outcome": "denied",
        "decision": "deny",
        "tenant": "acme",
        "principal": "acme/user:alice",
        "protocol": "2026-07-28",
        "correlation_id": "cid",
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
    }


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("key", ["name", "uri"])
def test_threat_28_name_from_a_client_cannot_forge_a_line(key: str, text: str) -> None:
    call = a_call(params={key: text}, route=None, caller=Caller(text, text))
    fields = parsed(line(call))
    assert (fields["target"], fields["tenant"], fields["outcome"]) == (text, text, "ok")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_threat_28_text_line_is_one_printable_line(text: str) -> None:
    formatted = line(a_call(params={"name": text}, route=None, caller=Caller("acme", text)), "text")
    assert formatted.isprintable()
    assert formatted.isascii()


@pytest.mark.parametrize("text", [each for name, each in HOSTILE.items() if name != "lone surrogate"])
async def test_threat_28_hostile_request_is_logged_as_one_parsable_line(text: str) -> None:
    async def answer(call: Call) -> Json:
        raise ValueError(text)

    async with Rig(FakeBackend(answer=answer)) as rig:
        encoded = "=?base64?" + b64encode(text.encode()).decode() + "?="
        info = {"io.modelcontextprotocol/clientInfo": {"name": text, "version": text}, "correlationId": text}
        await rig.modern("tools/call", {"name": text}, meta=info, headers={"mcp-name": encoded, "x-request-id": text})
        await rig.modern("tools/call", {"name": "lab_echo"}, meta=info)
        assert len(rig.traced_calls) == 2
        for call in rig.traced_calls:
            assert parsed(line(call))["method"] == "tools/call"


def test_credential_sent_as_a_name_is_not_logged() -> None:
    assert "s3cret" not in line(a_call(params={"name": KEY}, route=None))


def test_arguments_are_not_logged() -> None:
    call = a_call(params={"name": "x", "arguments": {"password": "hunter2"}, "_meta": {"actor": "hunter2"}})
    assert "hunter2" not in line(call)
    assert "hunter2" not in line(call, "text")


def test_unknown_name_is_truncated() -> None:
    assert len(line(a_call(params={"name": "x" * 100_000}, route=None))) < 1000


def read(uri: str) -> Call:
    call = a_call("resources/read", {"uri": uri}, route=a_route(canonical=f"lab:{uri}"))
    call.record.outcome = "error:-32602"
    return call


def test_known_uri_is_truncated() -> None:
    assert len(line(read("own:" + "x" * 100_000))) < 5000


def test_credential_in_a_known_uri_is_not_logged() -> None:
    assert "s3cret" not in line(read(f"own:{KEY}"))
