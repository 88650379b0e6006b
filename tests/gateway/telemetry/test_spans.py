"""Which calls are recorded as spans, and their attributes according to OpenTelemetry's MCP conventions."""

import asyncio
import json
import time
from typing import Any

import pytest

from gateway.contract import Call, ClientProfile, CurrentCall, Manifest, Record
from gateway.contract.trace_position import Sampler, TracePosition, UpstreamHop
from gateway.edge.correlation import trace_context
from gateway.errors import Fault, ForeignError, Kind, UnknownName
from gateway.telemetry.call_telemetry import SpanRecorder
from gateway.telemetry.span import Span
from gateway.telemetry.work_span import FinishedWork
from tests.gateway.fakes import ALICE, FakeBackend, a_call, a_route
from tests.gateway.telemetry.test_log import KEY
from tests.peers.otel_conventions import Situation, expected_attributes, expected_name, without_gatehouse_attributes

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def record_call(
    call: Call, exc: BaseException | None = None, ratio: float = 1.0, result: Any = None, **options: Any
) -> list[Span]:
    """Record a finished call and return its spans."""
    call.record.position = Sampler(ratio)(call.trace)
    if isinstance(exc, Fault):
        call.record.outcome = exc.kind.value
    elif isinstance(exc, ForeignError):
        call.record.outcome = f"error:{exc.code}"
    recorded: list[Span] = []
    SpanRecorder([recorded.extend], **options).record(call, result, exc)
    return recorded


def attributes_of(call: Call, exc: BaseException | None = None, **options: Any) -> dict[str, Any]:
    return dict(record_call(call, exc, **options)[0].attributes)


def handshake(session: str | None = "digest") -> ClientProfile:
    return ClientProfile("2025-11-25", {}, session=session)


# ---- selection


def test_failed_and_slow_calls_are_always_recorded_and_others_sampled() -> None:
    assert record_call(a_call(), ratio=0.0) == []
    assert len(record_call(a_call(), ratio=1.0)) == 1
    assert len(record_call(a_call(), Fault(Kind.DENIED, "no"), ratio=0.0)) == 1
    slow = a_call()
    slow.record.started -= 2_000_000_000
    (span,) = record_call(slow, ratio=0.0)
    assert span.duration >= 2.0
    assert abs(span.started / 1e9 - (time.time() - 2)) < 1


def test_long_subscription_does_not_count_as_slow() -> None:
    call = a_call("subscriptions/listen", {})
    call.record.started -= 2_000_000_000
    assert record_call(call, ratio=0.0) == []


def test_parent_decides_sampling_only_when_followed() -> None:
    assert Sampler(0.0)({"traceparent": PARENT}).sampled
    assert not Sampler(1.0)({"traceparent": PARENT[:-2] + "00"}).sampled
    assert not Sampler(0.0, follow_parent=False)({"traceparent": PARENT}).sampled
    shares = [Sampler(0.5)({}).sampled for _ in range(500)]
    assert 100 < sum(shares) < 400


def test_each_call_has_new_ids_under_its_parent() -> None:
    positions = {Sampler(0.0)({}) for _ in range(100)}
    assert (
        len({position.trace_id for position in positions}) == len({position.span_id for position in positions}) == 100
    )
    child = Sampler(0.0)({"traceparent": PARENT})
    assert (child.trace_id, child.parent_id) == ("a" * 32, "b" * 16)
    assert child.traceparent == f"00-{'a' * 32}-{child.span_id}-01"


# ---- attributes


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (a_call(), "tools/call lab.echo"),
        (a_call("prompts/get", {"name": "p"}, route=a_route(canonical="lab.p")), "prompts/get lab.p"),
        (a_call("resources/read", {"uri": "own:x"}, route=a_route(canonical="lab:own:x")), "resources/read"),
        (a_call("tools/call", {"name": "unknown"}, route=None), "tools/call"),
        (a_call("tools/list", {}), "tools/list"),
        (a_call("server/discover", {}), "server/discover"),
    ],
)
def test_span_name_is_method_and_known_target(call: Call, name: str) -> None:
    (span,) = record_call(call)
    assert (span.name, span.kind) == (name, "server")


PROMPT = a_route(canonical="lab.p")
DENIED = Fault(Kind.DENIED, "no")


@pytest.mark.parametrize(
    ("call", "exc", "at"),
    [
        (a_call(), None, Situation(kind="server", target="lab.echo")),
        (a_call(request_id="seven", peer=("::1", 50123)), None,
         Situation(kind="server", target="lab.echo", request_id="seven", client=("::1", 50123))),
        (a_call(client=handshake()), None,
         Situation(kind="server", target="lab.echo", version="2025-11-25", session="digest")),
        (a_call(client=handshake(None)), None, Situation(kind="server", target="lab.echo", version="2025-11-25")),
        (a_call(client=ClientProfile("2026-07-28", {}, session="digest")), None,
         Situation(kind="server", target="lab.echo")),
        (a_call("prompts/get", {"name": "p"}, route=PROMPT), None,
         Situation(kind="server", method="prompts/get", target="lab.p")),
        (a_call("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}}, route=PROMPT), None,
         Situation(kind="server", method="completion/complete", target="lab.p")),
        (a_call("completion/complete", {"ref": {"type": "ref/resource", "uri": "own:{x}"}}, route=a_route()), None,
         Situation(kind="server", method="completion/complete", uri="own:{x}")),
        (a_call("resources/read", {"uri": "own:x"}, route=a_route(canonical="lab:own:x")), None,
         Situation(kind="server", method="resources/read", uri="own:x")),
        (a_call("resources/subscribe", {"uri": "own:x"}), None,
         Situation(kind="server", method="resources/subscribe", uri="own:x")),
        (a_call("tools/list", {}), None, Situation(kind="server", method="tools/list")),
        (a_call("server/discover", {}), None, Situation(kind="server", method="server/discover")),
        (a_call("initialize", {}, client=handshake(None)), None,
         Situation(kind="server", method="initialize", version="2025-11-25")),
        (a_call(), DENIED, Situation(kind="server", target="lab.echo", error="tool_error")),
        (a_call(), ForeignError(-32000, "no"),
         Situation(kind="server", target="lab.echo", error="-32000", code=-32000)),
        (a_call("tools/list", {}), Fault(Kind.INVALID_INPUT, "no"),
         Situation(kind="server", method="tools/list", code=-32602)),
        (a_call(), asyncio.CancelledError(), Situation(kind="server", target="lab.echo", error="cancelled")),
    ],
)  # fmt: skip
def test_server_span_has_exactly_the_attributes_of_the_conventions(
    call: Call, exc: BaseException | None, at: Situation
) -> None:
    (span,) = record_call(call, exc)
    assert without_gatehouse_attributes(span.attributes) == expected_attributes(at)
    assert (span.name, span.kind) == (expected_name(at), at.kind)
    assert (span.error is not None) == (at.error is not None)


SERVER = ("10.0.0.1", 3001)


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({}, Situation(kind="client", target="lab.echo", request_id="5", server=SERVER)),
        ({"protocol": "2025-11-25", "session": "digest"},
         Situation(kind="client", target="lab.echo", request_id="5", server=SERVER, version="2025-11-25",
                   session="digest")),
        ({"transport": "sse", "protocol": "2024-11-05"},
         Situation(kind="client", target="lab.echo", request_id="5", server=SERVER, version="2024-11-05")),
        ({"transport": "stdio", "address": None},
         Situation(kind="client", target="lab.echo", request_id="5", transport="pipe")),
        ({"failure": "-32601", "code": -32601},
         Situation(kind="client", target="lab.echo", request_id="5", server=SERVER, error="-32601", code=-32601)),
        ({"failure": "tool_error"},
         Situation(kind="client", target="lab.echo", request_id="5", server=SERVER, error="tool_error")),
        ({"failure": "timeout"},
         Situation(kind="client", target="lab.echo", request_id="5", server=SERVER, error="timeout")),
    ],
)  # fmt: skip
def test_client_span_has_exactly_the_attributes_of_the_conventions(options: dict[str, Any], at: Situation) -> None:
    call = a_call(client=handshake(), peer=("10.1.2.3", 5))
    call.record.hops = [hop(**options)]
    _, span = record_call(call)
    assert without_gatehouse_attributes(span.attributes) == expected_attributes(at)
    assert (span.name, span.kind) == (expected_name(at), at.kind)
    assert (span.error is not None) == (at.error is not None)


def test_span_of_an_unsent_request_omits_unknown_attributes() -> None:
    call = a_call()
    call.record.hops = [hop(protocol="", request_id=None, failure="unavailable", message="It is down.")]
    _, span = record_call(call)
    attributes = dict(span.attributes)
    assert not {"mcp.protocol.version", "jsonrpc.request.id", "mcp.session.id"} & attributes.keys()
    assert (attributes["error.type"], span.error) == ("unavailable", "It is down.")


def test_call_made_by_a_backend_is_internal_without_network_attributes() -> None:
    (span,) = record_call(a_call(request_id=None))
    assert span.kind == "internal"
    assert not [key for key, _ in span.attributes if key.startswith(("network.", "jsonrpc.", "client."))]


def test_span_has_caller_policy_and_stage_attributes() -> None:
    call = a_call()
    call.record.decision, call.record.policies = "allow", ("grant.call", "guard.tenant")
    call.record.stages = ("trace", "dispatch")
    call.record.entered_at += [call.record.started, call.record.started + 5_000]
    attributes = attributes_of(call)
    gatehouse = {
        key: value for key, value in attributes.items() if key.startswith("gatehouse.") and ".stage." not in key
    }
    assert gatehouse == {
        "gatehouse.tenant": "acme",
        "gatehouse.principal": "acme/user:alice",
        "gatehouse.correlation_id": "cid",
        "gatehouse.policy.decision": "allow",
        "gatehouse.policy.ids": "grant.call,guard.tenant",
        "gatehouse.outcome": "ok",
        "gatehouse.endpoint": "/mcp",
        "gatehouse.namespace": "lab",
        "gatehouse.effect": 2,
    }
    assert attributes["gatehouse.stage.trace"] == pytest.approx(5e-6)
    assert attributes["gatehouse.stage.dispatch"] > 0


PROTOCOL = Manifest(error_style="protocol")


@pytest.mark.parametrize(
    ("exc", "manifest", "client", "error", "code"),
    [
        (Fault(Kind.DENIED, "no"), Manifest(), None, "tool_error", None),
        (Fault(Kind.DENIED, "no"), PROTOCOL, None, "403", "403"),
        (Fault(Kind.DENIED, "no"), PROTOCOL, handshake(), "-32043", "-32043"),
        (Fault(Kind.INTERNAL, "no"), PROTOCOL, None, "-32603", "-32603"),
        (Fault(Kind.INVALID_INPUT, "no"), PROTOCOL, None, None, "-32602"),
        (UnknownName("no"), Manifest(), None, None, "-32602"),
        (UnknownName("no", uri="x"), Manifest(), handshake(), None, "-32002"),
        (ForeignError(-32000, "no"), Manifest(), None, "-32000", "-32000"),
        (ForeignError(-32601, "no"), Manifest(), None, None, "-32601"),
        (asyncio.CancelledError(), Manifest(), None, "cancelled", None),
        (ValueError("secret"), Manifest(), None, "-32603", "-32603"),
    ],
)
def test_failure_is_recorded_by_its_code_unless_caused_by_the_client(
    exc: BaseException, manifest: Manifest, client: ClientProfile | None, error: str | None, code: str | None
) -> None:
    backend = FakeBackend()
    backend.manifest = manifest
    call = a_call(route=a_route(backend), client=client or ClientProfile("2026-07-28", {}))
    (span,) = record_call(call, exc)
    attributes = dict(span.attributes)
    assert (attributes.get("error.type"), attributes.get("rpc.response.status_code")) == (error, code)
    assert (span.error is not None) == (error is not None)
    assert "secret" not in str(span)


def test_result_with_is_error_is_a_tool_error() -> None:
    call = a_call()
    call.record.outcome = "tool_error"
    (span,) = record_call(call, result={"isError": True})
    assert dict(span.attributes)["error.type"] == "tool_error"
    assert span.error == ""


def hop(**options: Any) -> UpstreamHop:
    made = UpstreamHop("lab", "c" * 16, "http", ("10.0.0.1", 3001))
    made.protocol, made.request_id, made.ended = "2026-07-28", 5, made.started + 3_000_000
    for name, value in options.items():
        setattr(made, name, value)
    return made


def test_each_request_to_a_remote_server_is_a_child_client_span() -> None:
    call = a_call(trace={"traceparent": PARENT})
    call.record.hops = [
        hop(),
        hop(span_id="d" * 16, failure="-32000", code=-32000, message="Unavailable.", queued=2_000_000),
    ]
    server, first, second = record_call(call)
    assert {each.kind for each in (first, second)} == {"client"}
    assert first.name == "tools/call lab.echo"
    assert first.position == TracePosition("a" * 32, "c" * 16, server.position.span_id, True)
    assert first.duration == pytest.approx(0.003)
    assert (first.error, second.error) == (None, "Unavailable.")
    failed = dict(second.attributes)
    assert (failed["error.type"], failed["rpc.response.status_code"]) == ("-32000", "-32000")
    assert failed["gatehouse.queued"] == pytest.approx(0.002)


def test_call_with_two_trace_contexts_is_child_of_one_and_linked_to_the_other() -> None:
    ambient = f"00-{'c' * 32}-{'d' * 16}-00"
    call = a_call(trace=trace_context({"traceparent": ambient}, {"traceparent": PARENT}))
    call.record.hops = [hop()]
    server, client = record_call(call)
    assert (server.position.trace_id, server.position.parent_id) == ("a" * 32, "b" * 16)
    assert (server.link, client.link) == (ambient, "")


# ---- work spans


def record_work(
    exc: BaseException | None = None, ratio: float = 1.0, seconds: float = 0.0, **attributes: Any
) -> list[Span]:
    """Record a finished work span and return what was recorded."""
    current, started = CurrentCall(ALICE, "cid", 0.0, {}), time.perf_counter_ns()
    position = TracePosition("a" * 32, "b" * 16, "c" * 16, ratio == 1.0)
    recorded: list[Span] = []
    SpanRecorder([recorded.extend]).record_work(
        FinishedWork("lab", "Sow", current, position, started, started + int(seconds * 1e9), attributes, exc)
    )
    return recorded


def test_work_span_attributes_have_the_backends_prefix() -> None:
    (span,) = record_work(seconds=0.5, field=7, tenant="other")
    assert (span.name, span.kind, span.error) == ("lab Sow", "internal", None)
    assert span.position.parent_id == "c" * 16
    assert span.duration == pytest.approx(0.5)
    assert dict(span.attributes) == {
        "gatehouse.tenant": "acme",
        "gatehouse.principal": "acme/user:alice",
        "gatehouse.correlation_id": "cid",
        "gatehouse.namespace": "lab",
        "lab.field": 7,
        "lab.tenant": "other",
    }


@pytest.mark.parametrize(
    ("exc", "type", "message"),
    [
        (Fault(Kind.TIMEOUT, "late"), "timeout", "late"),
        (ForeignError(-32000, "no"), "-32000", "no"),
        (asyncio.CancelledError(), "cancelled", ""),
        (ValueError("secret"), "ValueError", ""),
    ],
)
def test_failed_work_span_is_always_recorded_with_its_error(exc: BaseException, type: str, message: str) -> None:
    (span,) = record_work(exc, ratio=0.0)
    assert (dict(span.attributes)["error.type"], span.error) == (type, message)


def test_other_work_spans_are_recorded_when_slow_or_sampled() -> None:
    assert record_work(ratio=0.0) == []
    assert len(record_work(ratio=0.0, seconds=2.0)) == len(record_work(ratio=1.0)) == 1


def test_work_span_attributes_are_bounded_and_redacted() -> None:
    given: dict[str, Any] = {f"key{number}": f"{KEY} " + "x" * 10_000 for number in range(100)}
    (span,) = record_work(**given)
    assert len(json.dumps(span.attributes)) < 8_000
    assert KEY not in str(span)


# ---- content


SENT = {"name": "lab_echo", "arguments": {"text": "hello", "password": "hunter2", "deep": [{"api_key": "hunter2"}]}}


def test_arguments_and_results_are_recorded_only_for_configured_tenants() -> None:
    result = {"content": [{"type": "text", "text": f"see {KEY}"}]}
    default = attributes_of(a_call(params=SENT), result=result)
    assert not [key for key in default if key.startswith("gen_ai.tool.call")]
    attributes = attributes_of(a_call(params=SENT), result=result, content_tenants=frozenset({"acme"}))
    arguments = json.loads(attributes["gen_ai.tool.call.arguments"])
    assert arguments == {"text": "hello", "password": "[redacted]", "deep": [{"api_key": "[redacted]"}]}
    assert "s3cret" not in attributes["gen_ai.tool.call.result"]
    assert "see gth_" in attributes["gen_ai.tool.call.result"]


def test_size_of_a_span_is_bounded_for_any_request() -> None:
    huge = {"name": "x" * 100_000, "arguments": {"text": "y" * 100_000}}
    call = a_call(params=huge, route=None, record=Record(), request_id="z" * 100_000)
    (span,) = record_call(call, UnknownName("no " + "x" * 100_000), content_tenants=frozenset({"acme"}))
    assert len(json.dumps([span.name, span.attributes, span.error])) < 10_000
