"""One trace from the SDK's client through the gateway to the SDK's server, exported to a real OTLP receiver."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.conftest import HANDSHAKE, MODERN
from tests.peers.collector import COLLECTORS, Collector, attributes
from tests.peers.otel_conventions import Situation, expected_attributes, expected_name, without_gatehouse_attributes

SERVER, CLIENT, INTERNAL = 2, 3, 1


@pytest.fixture(scope="module")
def sdk_spans() -> Iterator[InMemorySpanExporter]:
    """The spans of the SDK's client and server. The tracer provider is process-wide and cannot be replaced."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()


@pytest.fixture(scope="module")
def far() -> Iterator[str]:
    server = MCPServer("far")

    @server.tool()
    def double(number: int) -> str:
        """Twice the number."""
        if number == 13:
            raise ValueError("unlucky")
        return str(2 * number)

    @server.tool()
    def trace_context(ctx: Context) -> str:
        """The trace context of the request."""
        meta = dict(ctx.request_context.meta or {})
        return json.dumps({key: value for key, value in meta.items() if "/" not in key})

    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        running.should_exit = True
        thread.join()


@pytest.fixture(params=["http", "grpc"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    with COLLECTORS[request.param]() as collector:
        collector.protocol = request.param
        yield collector


def telemetry_settings(collector: Any, **more: Any) -> dict[str, Any]:
    otlp = {"url": collector.url, "protocol": collector.protocol, "headers": {"x-team": "t"}, **more}
    return {"traces": {"share": 1.0}, "otlp": otlp}


def by_name(spans: list[Any]) -> dict[tuple[str, int], Any]:
    return {(span.name, span.kind): span for span in spans}


@pytest.mark.parametrize("mode", [MODERN, HANDSHAKE])
async def test_client_gateway_and_server_spans_form_one_trace(
    start: Any, collector: Any, far: str, sdk_spans: InMemorySpanExporter, mode: str
) -> None:
    sdk_spans.clear()
    backends = {"far": {"url": far, "allow_private": True}}
    async with start(backends=backends, telemetry=telemetry_settings(collector)) as gateway:
        await gateway.wait_for_tool("far_double")
        async with gateway.client(mode) as client:
            assert (await client.call_tool("far_double", {"number": 21})).content[0].text == "42"
        ambient, parent = f"00-{'c' * 32}-{'d' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-01"
        params = {"name": "far_trace_context", "arguments": {}, "_meta": {"traceparent": parent}}
        answer = (await gateway.post("tools/call", params, traceparent=ambient)).json()
        trace_context = json.loads(answer["result"]["content"][0]["text"])
        await asyncio.to_thread(
            collector.wait_for, lambda: ("tools/call far.trace_context", CLIENT) in by_name(collector.spans())
        )
    seen = by_name(collector.spans())
    spans = [span for (name, _), span in seen.items() if name == "tools/call far.double"]
    ours = {span.kind: span for span in spans}
    assert set(ours) == {SERVER, CLIENT}
    theirs = {each.kind.name: each for each in sdk_spans.get_finished_spans() if "double" in each.name}
    first, last = theirs["CLIENT"], theirs["SERVER"]
    assert first.context is not None
    assert last.context is not None
    assert last.parent is not None
    trace_id = f"{first.context.trace_id:032x}"
    assert {span.trace_id.hex() for span in spans} == {trace_id} == {f"{last.context.trace_id:032x}"}
    assert ours[SERVER].parent_span_id.hex() == f"{first.context.span_id:016x}"
    assert ours[CLIENT].parent_span_id == ours[SERVER].span_id
    assert f"{last.parent.span_id:016x}" == ours[CLIENT].span_id.hex()
    _check_conventions(ours, mode, int(far.split(":")[2].split("/")[0]))
    _check_links(seen, parent, ambient, trace_context)
    assert collector.resource()["service.name"] == "gatehouse"


def _check_conventions(ours: dict[int, Any], mode: str, port: int) -> None:
    """Each span has exactly the attributes of the semantic conventions, plus the gateway's own."""
    version = "2025-11-25" if mode == HANDSHAKE else MODERN
    kinds: tuple[tuple[Literal["server", "client"], int], ...] = (("server", SERVER), ("client", CLIENT))
    for kind, number in kinds:
        seen = attributes(ours[number])
        session = seen.get("mcp.session.id")
        assert kind == "client" or seen["client.port"] > 0
        assert session is None if mode == MODERN else re.fullmatch(r"[0-9a-f]{32}", session or "")
        at = Situation(
            kind=kind, version=version, target="far.double", request_id=seen["jsonrpc.request.id"], session=session,
            client=("127.0.0.1", seen["client.port"]) if kind == "server" else None, server=("127.0.0.1", port),
        )  # fmt: skip
        assert without_gatehouse_attributes(seen.items()) == expected_attributes(at)
        assert ours[number].name == expected_name(at)
        assert not ours[number].links
    sessions = {attributes(span).get("mcp.session.id") for span in ours.values()}
    assert len(sessions) == (2 if mode == HANDSHAKE else 1)  # the client's session and the upstream session


def _check_links(spans: dict[tuple[str, int], Any], parent: str, ambient: str, trace_context: dict[str, str]) -> None:
    """The parent comes from `_meta`. The context of the HTTP request is only a link of the server span."""
    server, client = spans["tools/call far.trace_context", SERVER], spans["tools/call far.trace_context", CLIENT]
    assert (server.trace_id.hex(), server.parent_span_id.hex()) == (parent[3:35], parent[36:52])
    (link,) = server.links
    assert (link.trace_id.hex(), link.span_id.hex()) == (ambient[3:35], ambient[36:52])
    assert not client.links
    assert trace_context == {"traceparent": f"00-{parent[3:35]}-{client.span_id.hex()}-01"}


async def test_workflow_steps_are_child_spans_of_the_call_that_started_the_run(
    start: Any, collector: Any, far: str, sdk_spans: InMemorySpanExporter
) -> None:
    sdk_spans.clear()
    steps = [
        {"id": "a", "actionId": "core.ping"},
        {"id": "b", "actionId": "far.double", "input": {"number": 4}},
    ]
    backends = {
        "far": {"url": far, "allow_private": True},
        "core": {"module": "backends.core"},
        "workflow": {"module": "backends.workflow"},
    }
    async with start(backends=backends, telemetry=telemetry_settings(collector)) as gateway:
        await gateway.wait_for_tool("far_double")
        definition = {"id": "w", "steps": steps}
        async with gateway.client() as client:
            begun = await client.call_tool("workflow_run", {"definition": definition})
            run_id = begun.structured_content["runId"]
            done = await client.call_tool("workflow_status", {"runId": run_id, "waitMs": 20_000})
            assert done.structured_content["status"] == "succeeded"
        wanted = {
            ("tools/call workflow.run", SERVER),
            ("tools/call core.ping", INTERNAL),
            ("tools/call far.double", INTERNAL),
            ("tools/call far.double", CLIENT),
        }
        await asyncio.to_thread(collector.wait_for, lambda: wanted <= by_name(collector.spans()).keys())
    spans = by_name(collector.spans())
    run = spans["tools/call workflow.run", SERVER]
    step = spans["tools/call far.double", INTERNAL]
    assert {spans[each].trace_id for each in wanted} == {run.trace_id}
    assert step.parent_span_id == run.span_id == spans["tools/call core.ping", INTERNAL].parent_span_id
    assert spans["tools/call far.double", CLIENT].parent_span_id == step.span_id
    far_span = next(
        each for each in sdk_spans.get_finished_spans() if each.kind.name == "SERVER" and "double" in each.name
    )
    assert far_span.parent is not None
    assert f"{far_span.parent.span_id:016x}" == spans["tools/call far.double", CLIENT].span_id.hex()


async def test_upstream_tool_failure_is_a_tool_error_in_both_spans(start: Any, collector: Any, far: str) -> None:
    backends = {"far": {"url": far, "allow_private": True}}
    telemetry = {**telemetry_settings(collector), "traces": {"share": 0.0}}
    async with start(backends=backends, telemetry=telemetry) as gateway:
        await gateway.wait_for_tool("far_double")
        await gateway.call("far_double", {"number": 1})
        failed = await gateway.call("far_double", {"number": 13})
        assert failed["result"]["isError"]
        spans = await asyncio.to_thread(
            collector.wait_for, lambda: [each for each in collector.spans() if each.name == "tools/call far.double"]
        )
    assert {span.kind for span in spans} == {SERVER, CLIENT}  # and no span of the successful call
    assert {attributes(span)["error.type"] for span in spans} == {"tool_error"}
    assert {span.status.code for span in spans} == {2}


async def test_exported_metrics_and_logs_agree_with_the_log_line(start: Any, collector: Any) -> None:
    otlp = {**telemetry_settings(collector)["otlp"], "logs": True, "metrics_interval": 0.05}
    async with start(backends={"core": {"module": "backends.core"}}, telemetry={"otlp": otlp}) as gateway:
        await gateway.call("core_ping", {}, {"correlationId": "abc"})
        record = await asyncio.to_thread(
            collector.wait_for, lambda: [each for each in collector.logs() if "core.ping" in each.body.string_value]
        )
        await asyncio.to_thread(collector.wait_for, lambda: "mcp.server.operation.duration" in collector.metrics())
        line = next(
            json.loads(each)
            for each in gateway.log.getvalue().splitlines()
            if json.loads(each).get("target") == "core.ping"
        )
    assert attributes(record[0])["gatehouse.correlation_id"] == "abc" == line["correlation_id"]
    assert record[0].trace_id.hex() == line["trace_id"]
    assert record[0].span_id.hex() == line["span_id"]
    (point,) = collector.metrics()["mcp.server.operation.duration"].histogram.data_points
    assert attributes(point)["gen_ai.tool.name"] == "core.ping"
    assert point.count == 1


@pytest.mark.parametrize("behaviour", ["unavailable", "slow", "resetting", "rejecting"])
async def test_no_call_fails_or_waits_while_the_collector_misbehaves(
    start: Any, collector: Any, behaviour: Any
) -> None:
    collector.behaviour = behaviour
    telemetry = telemetry_settings(collector, timeout=0.3, metrics_interval=0.05, logs=True)
    async with start(backends={"core": {"module": "backends.core"}}, telemetry=telemetry) as gateway:
        async with asyncio.timeout(10):
            for _ in range(30):
                assert "result" in await gateway.call("core_ping")
        await asyncio.to_thread(collector.wait_for, lambda: collector.attempts >= 1)
        assert "result" in await gateway.call("core_ping")
        collector.released.set()


async def test_unreachable_collector_increments_the_failure_counter(start: Any) -> None:
    telemetry = {"traces": {"share": 1.0}, "otlp": {"url": "http://127.0.0.1:9", "timeout": 1}}
    async with start(backends={"core": {"module": "backends.core"}}, telemetry=telemetry) as gateway:
        assert "result" in await gateway.call("core_ping")
        exporter = gateway.app.telemetry._exporter
        async with asyncio.timeout(10):
            while not exporter.failures["traces"]:
                await asyncio.sleep(0.01)
        assert "result" in await gateway.call("core_ping")
