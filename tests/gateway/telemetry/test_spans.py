"""Which calls are kept as spans, and what a span says: OpenTelemetry's MCP conventions, row by row."""

import asyncio
import json
import time
from typing import Any

import pytest

from gateway.contract import Call, ClientProfile, CurrentCall, Manifest, Record
from gateway.contract.trace_position import TracePosition, UpstreamHop
from gateway.edge.correlation import trace_context
from gateway.errors import Fault, ForeignError, Kind, UnknownName
from gateway.telemetry.call_telemetry import SpanRecorder
from gateway.telemetry.sampling import Sampler
from gateway.telemetry.span import Span
from gateway.telemetry.work_span import FinishedWork
from tests.gateway.fakes import ALICE, FakeBackend, a_call, a_route
from tests.gateway.telemetry.test_log import KEY
from tests.peers.otel_conventions import Situation, expected_attributes, expected_name, without_gatehouse_attributes

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def ended(
    call: Call, exc: BaseException | None = None, share: float = 1.0, result: Any = None, **more: Any
) -> list[Span]:
    """What is kept of a call that ended so."""
    call.record.position = Sampler(share)(call.trace)
    if isinstance(exc, Fault):
        call.record.outcome = exc.kind.value
    elif isinstance(exc, ForeignError):
        call.record.outcome = f"error:{exc.code}"
    kept: list[Span] = []
    SpanRecorder([kept.extend], **more).told(call, result, exc)
    return kept


def told(call: Call, exc: BaseException | None = None, **more: Any) -> dict[str, Any]:
    return dict(ended(call, exc, **more)[0].attributes)


def handshake(session: str | None = "digest") -> ClientProfile:
    return ClientProfile("2025-11-25", {}, session=session)


# ---- which


def test_failures_and_slow_calls_are_always_kept_and_of_the_rest_a_share() -> None:
    assert ended(a_call(), share=0.0) == []
    assert len(ended(a_call(), share=1.0)) == 1
    assert len(ended(a_call(), Fault(Kind.DENIED, "no"), share=0.0)) == 1
    slow = a_call()
    slow.record.started -= 2_000_000_000
    (span,) = ended(slow, share=0.0)
    assert span.duration >= 2.0
    assert abs(span.started / 1e9 - (time.time() - 2)) < 1


def test_a_subscription_is_not_slow_because_its_client_stays() -> None:
    call = a_call("subscriptions/listen", {})
    call.record.started -= 2_000_000_000
    assert ended(call, share=0.0) == []


def test_a_parent_decides_for_its_trace_where_it_may() -> None:
    assert Sampler(0.0)({"traceparent": PARENT}).sampled
    assert not Sampler(1.0)({"traceparent": PARENT[:-2] + "00"}).sampled
    assert not Sampler(0.0, follow_parent=False)({"traceparent": PARENT}).sampled
    shares = [Sampler(0.5)({}).sampled for _ in range(500)]
    assert 100 < sum(shares) < 400


def test_every_call_has_ids_of_its_own_below_its_parent() -> None:
    places = {Sampler(0.0)({}) for _ in range(100)}
    assert len({place.trace_id for place in places}) == len({place.span_id for place in places}) == 100
    below = Sampler(0.0)({"traceparent": PARENT})
    assert (below.trace_id, below.parent_id) == ("a" * 32, "b" * 16)
    assert below.traceparent == f"00-{'a' * 32}-{below.span_id}-01"


# ---- what


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (a_call(), "tools/call lab.echo"),
        (a_call("prompts/get", {"name": "p"}, route=a_route(canonical="lab.p")), "prompts/get lab.p"),
        (a_call("resources/read", {"uri": "own:x"}, route=a_route(canonical="lab:own:x")), "resources/read"),
        (a_call("tools/call", {"name": "made up"}, route=None), "tools/call"),
        (a_call("tools/list", {}), "tools/list"),
        (a_call("server/discover", {}), "server/discover"),
    ],
)
def test_a_span_is_named_by_its_method_and_a_target_that_exists(call: Call, name: str) -> None:
    (span,) = ended(call)
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
        (a_call(client=ClientProfile("2026-07-28", {}, session="digest")), None, Situation(kind="server", target="lab.echo")),
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
def test_a_server_span_says_what_the_conventions_table_says_and_no_more(
    call: Call, exc: BaseException | None, at: Situation
) -> None:
    (span,) = ended(call, exc)
    assert without_gatehouse_attributes(span.attributes) == expected_attributes(at)
    assert (span.name, span.kind) == (expected_name(at), at.kind)
    assert (span.error is not None) == (at.error is not None)


THERE = ("10.0.0.1", 3001)


@pytest.mark.parametrize(
    ("more", "at"),
    [
        ({}, Situation(kind="client", target="lab.echo", request_id="5", server=THERE)),
        ({"protocol": "2025-11-25", "session": "digest"},
         Situation(kind="client", target="lab.echo", request_id="5", server=THERE, version="2025-11-25",
                   session="digest")),
        ({"transport": "sse", "protocol": "2024-11-05"},
         Situation(kind="client", target="lab.echo", request_id="5", server=THERE, version="2024-11-05")),
        ({"transport": "stdio", "address": None},
         Situation(kind="client", target="lab.echo", request_id="5", transport="pipe")),
        ({"failure": "-32601", "code": -32601},
         Situation(kind="client", target="lab.echo", request_id="5", server=THERE, error="-32601", code=-32601)),
        ({"failure": "tool_error"},
         Situation(kind="client", target="lab.echo", request_id="5", server=THERE, error="tool_error")),
        ({"failure": "timeout"},
         Situation(kind="client", target="lab.echo", request_id="5", server=THERE, error="timeout")),
    ],
)  # fmt: skip
def test_a_client_span_says_what_the_conventions_table_says_and_no_more(more: dict[str, Any], at: Situation) -> None:
    call = a_call(client=handshake(), peer=("10.1.2.3", 5))
    call.record.hops = [hop(**more)]
    _, span = ended(call)
    assert without_gatehouse_attributes(span.attributes) == expected_attributes(at)
    assert (span.name, span.kind) == (expected_name(at), at.kind)
    assert (span.error is not None) == (at.error is not None)


def test_of_a_request_that_was_never_sent_is_told_only_what_is_known() -> None:
    call = a_call()
    call.record.hops = [hop(protocol="", request_id=None, failure="unavailable", message="It is away.")]
    _, span = ended(call)
    seen = dict(span.attributes)
    assert not {"mcp.protocol.version", "jsonrpc.request.id", "mcp.session.id"} & seen.keys()
    assert (seen["error.type"], span.error) == ("unavailable", "It is away.")


def test_a_call_that_a_module_made_is_internal_and_came_by_no_network() -> None:
    (span,) = ended(a_call(request_id=None))
    assert span.kind == "internal"
    assert not [key for key, _ in span.attributes if key.startswith(("network.", "jsonrpc.", "client."))]


def test_the_gateway_says_whose_call_it_was_and_what_policy_decided() -> None:
    call = a_call()
    call.record.decision, call.record.policies = "allow", ("grant.call", "guard.tenant")
    call.record.stages = ("trace", "dispatch")
    call.record.marks += [call.record.started, call.record.started + 5_000]
    seen = told(call)
    own = {key: value for key, value in seen.items() if key.startswith("gatehouse.") and ".stage." not in key}
    assert own == {
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
    assert seen["gatehouse.stage.trace"] == pytest.approx(5e-6)
    assert seen["gatehouse.stage.dispatch"] > 0


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
def test_a_failure_is_told_by_its_code_unless_the_mistake_was_the_clients(
    exc: BaseException, manifest: Manifest, client: ClientProfile | None, error: str | None, code: str | None
) -> None:
    backend = FakeBackend()
    backend.manifest = manifest
    call = a_call(route=a_route(backend), client=client or ClientProfile("2026-07-28", {}))
    (span,) = ended(call, exc)
    seen = dict(span.attributes)
    assert (seen.get("error.type"), seen.get("rpc.response.status_code")) == (error, code)
    assert (span.error is not None) == (error is not None)
    assert "secret" not in str(span)


def test_a_result_that_says_it_failed_is_a_tool_error() -> None:
    call = a_call()
    call.record.outcome = "tool_error"
    (span,) = ended(call, result={"isError": True})
    assert dict(span.attributes)["error.type"] == "tool_error"
    assert span.error == ""


def hop(**more: Any) -> UpstreamHop:
    made = UpstreamHop("lab", "c" * 16, "http", ("10.0.0.1", 3001))
    made.protocol, made.request_id, made.ended = "2026-07-28", 5, made.started + 3_000_000
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_each_request_to_a_remote_server_is_a_client_span_below_the_calls_own() -> None:
    call = a_call(trace={"traceparent": PARENT})
    call.record.hops = [
        hop(),
        hop(span_id="d" * 16, failure="-32000", code=-32000, message="Not today.", queued=2_000_000),
    ]
    server, first, second = ended(call)
    assert {each.kind for each in (first, second)} == {"client"}
    assert first.name == "tools/call lab.echo"
    assert first.place == TracePosition("a" * 32, "c" * 16, server.place.span_id, True)
    assert first.duration == pytest.approx(0.003)
    assert (first.error, second.error) == (None, "Not today.")
    failed = dict(second.attributes)
    assert (failed["error.type"], failed["rpc.response.status_code"]) == ("-32000", "-32000")
    assert failed["gatehouse.queued"] == pytest.approx(0.002)


def test_a_call_that_came_in_two_contexts_is_a_child_of_one_and_linked_to_the_other() -> None:
    ambient = f"00-{'c' * 32}-{'d' * 16}-00"
    call = a_call(trace=trace_context({"traceparent": ambient}, {"traceparent": PARENT}))
    call.record.hops = [hop()]
    server, client = ended(call)
    assert (server.place.trace_id, server.place.parent_id) == ("a" * 32, "b" * 16)
    assert (server.link, client.link) == (ambient, "")


# ---- pieces of a module's work


def worked(exc: BaseException | None = None, share: float = 1.0, took: float = 0.0, **about: Any) -> list[Span]:
    """What is kept of a piece of work that ended so."""
    here, started = CurrentCall(ALICE, "cid", 0.0, {}), time.perf_counter_ns()
    place = TracePosition("a" * 32, "b" * 16, "c" * 16, share == 1.0)
    kept: list[Span] = []
    SpanRecorder([kept.extend]).worked(
        FinishedWork("lab", "Sow", here, place, started, started + int(took * 1e9), about, exc)
    )
    return kept


def test_a_piece_of_work_is_told_under_its_modules_own_name() -> None:
    (span,) = worked(took=0.5, field=7, tenant="other")
    assert (span.name, span.kind, span.error) == ("lab Sow", "internal", None)
    assert span.place.parent_id == "c" * 16
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
def test_a_piece_of_work_that_failed_is_always_kept_and_says_how(exc: BaseException, type: str, message: str) -> None:
    (span,) = worked(exc, share=0.0)
    assert (dict(span.attributes)["error.type"], span.error) == (type, message)


def test_of_the_rest_those_are_kept_that_were_slow_or_whose_call_was_chosen() -> None:
    assert worked(share=0.0) == []
    assert len(worked(share=0.0, took=2.0)) == len(worked(share=1.0)) == 1


def test_what_a_module_says_of_its_work_is_bounded_and_cleaned() -> None:
    (span,) = worked(**{f"key{number}": f"{KEY} " + "x" * 10_000 for number in range(100)})
    assert len(json.dumps(span.attributes)) < 8_000
    assert KEY not in str(span)


# ---- content


SENT = {"name": "lab_echo", "arguments": {"text": "hello", "password": "hunter2", "deep": [{"api_key": "hunter2"}]}}


def test_arguments_and_results_are_told_only_of_a_tenant_that_asked() -> None:
    result = {"content": [{"type": "text", "text": f"see {KEY}"}]}
    closed = told(a_call(params=SENT), result=result)
    assert not [key for key in closed if key.startswith("gen_ai.tool.call")]
    seen = told(a_call(params=SENT), result=result, open=frozenset({"acme"}))
    arguments = json.loads(seen["gen_ai.tool.call.arguments"])
    assert arguments == {"text": "hello", "password": "[redacted]", "deep": [{"api_key": "[redacted]"}]}
    assert "s3cret" not in seen["gen_ai.tool.call.result"]
    assert "see gth_" in seen["gen_ai.tool.call.result"]


def test_a_span_is_bounded_whatever_was_sent() -> None:
    huge = {"name": "x" * 100_000, "arguments": {"text": "y" * 100_000}}
    call = a_call(params=huge, route=None, record=Record(), request_id="z" * 100_000)
    (span,) = ended(call, UnknownName("no " + "x" * 100_000), open=frozenset({"acme"}))
    assert len(json.dumps([span.name, span.attributes, span.error])) < 10_000
