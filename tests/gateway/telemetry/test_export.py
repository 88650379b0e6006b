"""The exporter before a real receiver, which is not always well; and bytes that the official messages read back."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.contract.trace_position import TracePosition
from gateway.telemetry.export import Exporter
from gateway.telemetry.metric_families import Histogram, MetricFamily
from gateway.telemetry.otlp import LogRecord, OtlpEncoder
from gateway.telemetry.otlp_log import OtlpHandler
from gateway.telemetry.senders import GrpcSender, HttpSender
from gateway.telemetry.span import Span
from tests.peers.collector import COLLECTORS, REQUESTS, Collector, attributes

SENDERS: dict[str, Any] = {"http": HttpSender, "grpc": GrpcSender}
ENCODER = OtlpEncoder({"service.name": "gatehouse", "service.instance.id": "i"}, "1.2.3")


def a_span(number: int = 1, **more: Any) -> Span:
    given: dict[str, Any] = {
        "name": "tools/call lab.echo",
        "kind": "server",
        "place": TracePosition(f"{number:032x}", f"{number:016x}", "b" * 16, True),
        "started": 1_800_000_000_000_000_001,
        "ended": 1_800_000_000_000_000_999,
        "attributes": [("a", "text"), ("b", 7), ("c", 0.25), ("d", True), ("e", -1), ("long", "x" * 300)],
        **more,
    }
    return Span(**given)


@pytest.fixture(params=["http", "grpc"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    with COLLECTORS[request.param]() as collector:
        collector.protocol = request.param
        yield collector


def exporter_to(collector: Any, timeout: float = 5.0, url: str | None = None, **more: Any) -> Exporter:
    sender = SENDERS[collector.protocol](url or collector.url, {"X-Token": "t"}, timeout)
    return Exporter(sender, ENCODER, every=0.02, **more)


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not fact():
            await asyncio.sleep(0.01)


# ---- bytes


def test_a_span_reads_back_field_for_field() -> None:
    request = REQUESTS["traces"].FromString(
        ENCODER.traces([a_span(error="why", state="v=1"), a_span(2, kind="client")])
    )
    (resource,) = request.resource_spans
    assert attributes(resource.resource) == {"service.name": "gatehouse", "service.instance.id": "i"}
    assert (resource.scope_spans[0].scope.name, resource.scope_spans[0].scope.version) == ("gatehouse", "1.2.3")
    first, second = resource.scope_spans[0].spans
    assert (first.name, first.kind, second.kind) == ("tools/call lab.echo", 2, 3)
    assert first.trace_id.hex() == f"{1:032x}"
    assert (first.span_id.hex(), first.parent_span_id.hex()) == (f"{1:016x}", "b" * 16)
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (1800000000000000001, 1800000000000000999)
    assert attributes(first) == {"a": "text", "b": 7, "c": 0.25, "d": True, "e": -1, "long": "x" * 300}
    assert (first.status.code, first.status.message, first.trace_state) == (2, "why", "v=1")
    assert second.status.code == 0


def test_metrics_read_back_as_sums_gauges_and_histograms() -> None:
    counter = MetricFamily("gatehouse.calls", "Calls.", "counter")
    counter.add(3, ("tenant", "acme"), ("tool", ""))
    gauge = MetricFamily("gatehouse.streams", "Streams.", "gauge")
    gauge.add(2)
    histogram = MetricFamily("mcp.server.operation.duration", "Seconds.", "histogram", "s")
    times = Histogram((0.1, 1.0))
    for value in (0.05, 0.5, 0.5, 5.0):
        times.observe(value)
    histogram.add(times, ("mcp.method.name", "tools/call"))
    request = REQUESTS["metrics"].FromString(ENCODER.metrics([counter, gauge, histogram], 1, 2))
    calls, streams, lasted = request.resource_metrics[0].scope_metrics[0].metrics
    (point,) = calls.sum.data_points
    assert (point.as_double, attributes(point)) == (3.0, {"tenant": "acme"})
    assert (calls.sum.is_monotonic, calls.sum.aggregation_temporality) == (True, 2)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1, 2)
    assert streams.gauge.data_points[0].as_double == 2.0
    (spread,) = lasted.histogram.data_points
    assert (spread.count, spread.sum) == (4, pytest.approx(6.05))
    assert (list(spread.bucket_counts), list(spread.explicit_bounds)) == ([1, 2, 1], [0.1, 1.0])
    assert (lasted.name, lasted.unit, lasted.histogram.aggregation_temporality) == (
        "mcp.server.operation.duration",
        "s",
        2,
    )


def test_a_log_record_reads_back_with_the_ids_of_its_call() -> None:
    record = LogRecord(5, "warning", "words", [("logger", "gatehouse")], "a" * 32, "b" * 16)
    request = REQUESTS["logs"].FromString(ENCODER.logs([record]))
    (read,) = request.resource_logs[0].scope_logs[0].log_records
    assert (read.body.string_value, read.severity_number, read.severity_text) == ("words", 13, "WARNING")
    assert (read.trace_id.hex(), read.span_id.hex()) == ("a" * 32, "b" * 16)
    assert attributes(read) == {"logger": "gatehouse"}


def test_what_the_process_logs_is_sent_without_its_secrets() -> None:
    records: list[LogRecord] = []
    handler = OtlpHandler(records.append)
    try:
        raise ValueError("Bearer hunter2")
    except ValueError:
        cause = sys.exc_info()
    made = logging.LogRecord("gatehouse.x", logging.ERROR, "", 1, "token Bearer hunter2", (), cause)
    made.__dict__ |= {"correlation_id": "cid", "trace_id": "a" * 32, "span_id": "b" * 16}
    handler.emit(made)
    handler.emit(logging.LogRecord("gatehouse.telemetry", logging.ERROR, "", 1, "itself", (), None))
    (record,) = records
    assert (record.trace_id, record.span_id, record.level) == ("a" * 32, "b" * 16, "error")
    assert dict(record.attributes)["gatehouse.correlation_id"] == "cid"
    assert "hunter2" not in str(record)


# ---- sending


async def test_a_collector_gets_all_three_signals_and_the_headers_it_wants(collector: Any) -> None:
    exporter = exporter_to(collector)
    exporter.spans([a_span(), a_span(2)])
    exporter.log(LogRecord(1, "info", "words"))
    family = MetricFamily("gatehouse.streams", "Streams.", "gauge")
    family.add(2)
    exporter.metrics([family])
    await asyncio.to_thread(collector.wait_for, lambda: collector.spans() and collector.logs() and collector.metrics())
    await exporter.close()
    assert len(collector.spans()) == 2
    assert {name.lower(): value for name, value in collector.headers[0].items()}["x-token"] == "t"
    assert exporter.sent == {"traces": 2, "logs": 1, "metrics": 1}
    assert not exporter.dropped


async def test_what_waits_is_sent_when_the_gateway_stops(collector: Any) -> None:
    exporter = Exporter(SENDERS[collector.protocol](collector.url, {}, 5.0), ENCODER, every=60)
    exporter.spans([a_span()])
    await exporter.close()
    assert len(collector.spans()) == 1


async def test_a_collector_that_is_unwell_gets_everything_once_it_is_well(collector: Any) -> None:
    collector.behaviour = "unavailable"
    exporter = exporter_to(collector)
    exporter.spans([a_span(number) for number in range(1, 6)])
    await asyncio.to_thread(collector.wait_for, lambda: collector.attempts >= 1)
    collector.behaviour = "healthy"
    await asyncio.to_thread(collector.wait_for, lambda: len(collector.spans()) == 5)
    await exporter.close()
    assert exporter.failures["traces"] >= 1
    assert not exporter.dropped


async def test_what_a_collector_refuses_is_dropped_and_counted(collector: Any) -> None:
    collector.behaviour = "rejecting"
    exporter = exporter_to(collector)
    exporter.spans([a_span(), a_span(2)])
    await until(lambda: exporter.dropped["traces"] == 2)
    await exporter.close()


@pytest.mark.parametrize("behaviour", ["unavailable", "slow", "resetting"])
async def test_while_a_collector_fails_memory_is_bounded_and_nobody_waits(collector: Any, behaviour: Any) -> None:
    collector.behaviour = behaviour
    exporter = exporter_to(collector, timeout=0.2, bound=100, batch=10)
    exporter.spans([a_span()])
    await asyncio.to_thread(collector.wait_for, lambda: collector.attempts >= 1)
    began = time.perf_counter()
    for number in range(1, 5001):
        exporter.spans([a_span(number)])
    assert time.perf_counter() - began < 1.0
    assert exporter.waiting <= 100
    assert exporter.dropped["traces"] >= 4800
    collector.released.set()
    await exporter.close()


async def test_a_collector_that_is_not_there_costs_a_counter(collector: Any) -> None:
    exporter = exporter_to(collector, timeout=1.0, url="http://127.0.0.1:9", bound=5)
    for number in range(1, 11):
        exporter.spans([a_span(number)])
    assert exporter.dropped["traces"] >= 4
    await until(lambda: exporter.failures["traces"] > 0)
    await exporter.close()
