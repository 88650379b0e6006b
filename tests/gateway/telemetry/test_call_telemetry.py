"""What is told of every call that ends."""

from base64 import b64encode

import pytest

from gateway.contract import Call, Caller, Json
from gateway.contract.trace_position import TracePosition
from gateway.telemetry.call_telemetry import CallLog
from tests.gateway.fakes import FakeBackend, Rig, a_call, a_route
from tests.gateway.telemetry.test_log import HOSTILE, KEY, parsed


def line(call: Call, form: str = "json") -> str:
    lines: list[str] = []
    CallLog(lines.append, form).told(call)
    (told,) = lines
    return told


def test_a_line_says_who_called_what_and_how_it_ended() -> None:
    call = a_call()
    call.record.position = TracePosition("a" * 32, "b" * 16)
    call.record.outcome, call.record.decision = "denied", "deny"
    seen = parsed(line(call))
    ms = seen.pop("ms")
    assert isinstance(ms, float)
    assert ms >= 0
    assert seen.pop("time").endswith("Z")
    assert seen == {
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
def test_threat_28_a_name_that_a_client_made_up_cannot_forge_a_line(key: str, text: str) -> None:
    call = a_call(params={key: text}, route=None, caller=Caller(text, text))
    seen = parsed(line(call))
    assert (seen["target"], seen["tenant"], seen["outcome"]) == (text, text, "ok")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_threat_28_a_line_for_a_terminal_is_one_printable_line(text: str) -> None:
    shown = line(a_call(params={"name": text}, route=None, caller=Caller("acme", text)), "text")
    assert shown.isprintable()
    assert shown.isascii()


@pytest.mark.parametrize("text", [each for name, each in HOSTILE.items() if name != "half a pair"])
async def test_threat_28_what_comes_over_the_wire_leaves_one_parsable_line(text: str) -> None:
    async def answer(call: Call) -> Json:
        raise ValueError(text)

    async with Rig(FakeBackend(answer=answer)) as rig:
        encoded = "=?base64?" + b64encode(text.encode()).decode() + "?="
        info = {"io.modelcontextprotocol/clientInfo": {"name": text, "version": text}, "correlationId": text}
        await rig.modern("tools/call", {"name": text}, meta=info, headers={"mcp-name": encoded, "x-request-id": text})
        await rig.modern("tools/call", {"name": "lab_echo"}, meta=info)
        assert len(rig.told) == 2
        for call in rig.told:
            assert parsed(line(call))["method"] == "tools/call"


def test_a_credential_put_where_a_name_belongs_is_not_logged() -> None:
    assert "s3cret" not in line(a_call(params={"name": KEY}, route=None))


def test_arguments_are_never_in_a_line() -> None:
    call = a_call(params={"name": "x", "arguments": {"password": "hunter2"}, "_meta": {"actor": "hunter2"}})
    assert "hunter2" not in line(call)
    assert "hunter2" not in line(call, "text")


def test_a_name_that_leads_nowhere_is_cut() -> None:
    assert len(line(a_call(params={"name": "x" * 100_000}, route=None))) < 1000


def read(uri: str) -> Call:
    call = a_call("resources/read", {"uri": uri}, route=a_route(canonical=f"lab:{uri}"))
    call.record.outcome = "error:-32602"
    return call


def test_a_uri_that_leads_somewhere_is_cut_as_well() -> None:
    assert len(line(read("own:" + "x" * 100_000))) < 5000


def test_a_credential_in_a_uri_that_leads_somewhere_is_not_logged() -> None:
    assert "s3cret" not in line(read(f"own:{KEY}"))
