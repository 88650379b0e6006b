"""The exporter against real collectors that may fail, and its encoding against the official protobuf messages."""

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


def a_span(number: int = 1, **options: Any) -> Span:
    values: dict[str, Any] = {
        "name": "tools/call lab.echo",
        "kind": "server",
        "position": TracePosition(f"{number:032x}", f"{number:016x}", "b" * 16, True),
        "started": 1_800_000_000_000_000_001,
        "ended": 1_800_000_000_000_000_999,
        "attributes": [("a", "text"), ("b", 7), ("c", 0.25), ("d", True), ("e", -1), ("long", "x" * 300)],
        **options,
    }
    return Span(**values)


@pytest.fixture(params=["http", "grpc"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    with COLLECTORS[request.param]() as collector:
        collector.protocol = request.param
        yield collector


def exporter_to(collector: Any, timeout: float = 5.0, url: str | None = None, **options: Any) -> Exporter:
    sender = SENDERS[collector.protocol](url or collector.url, {"X-Token": "t"}, timeout)
    return Exporter(sender, ENCODER, interval=0.02, **options)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


# ---- encoding


def test_encoded_span_decodes_to_the_same_fields() -> None:
    request = REQUESTS["traces"].FromString(
        ENCODER.traces([a_span(error="why", trace_state="v=1"), a_span(2, kind="client")])
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


def test_encoded_metrics_decode_as_sums_gauges_and_histograms() -> None:
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
    calls, streams, duration = request.resource_metrics[0].scope_metrics[0].metrics
    (point,) = calls.sum.data_points
    assert (point.as_double, attributes(point)) == (3.0, {"tenant": "acme"})
    assert (calls.sum.is_monotonic, calls.sum.aggregation_temporality) == (True, 2)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1, 2)
    assert streams.gauge.data_points[0].as_double == 2.0
    (point_,) = duration.histogram.data_points
    assert (point_.count, point_.sum) == (4, pytest.approx(6.05))
    assert (list(point_.bucket_counts), list(point_.explicit_bounds)) == ([1, 2, 1], [0.1, 1.0])
    assert (duration.name, duration.unit, duration.histogram.aggregation_temporality) == (
        "mcp.server.operation.duration",
        "s",
        2,
    )


def test_encoded_log_record_decodes_with_the_ids_of_its_call() -> None:
    record = LogRecord(5, "warning", "words", [("logger", "gatehouse")], "a" * 32, "b" * 16)
    request = REQUESTS["logs"].FromString(ENCODER.logs([record]))
    (read,) = request.resource_logs[0].scope_logs[0].log_records
    assert (read.body.string_value, read.severity_number, read.severity_text) == ("words", 13, "WARNING")
    assert (read.trace_id.hex(), read.span_id.hex()) == ("a" * 32, "b" * 16)
    assert attributes(read) == {"logger": "gatehouse"}


def test_log_records_are_exported_without_secrets() -> None:
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


async def test_collector_receives_all_signals_and_configured_headers(collector: Any) -> None:
    exporter = exporter_to(collector)
    exporter.export_spans([a_span(), a_span(2)])
    exporter.export_log(LogRecord(1, "info", "words"))
    family = MetricFamily("gatehouse.streams", "Streams.", "gauge")
    family.add(2)
    exporter.export_metrics([family])
    await asyncio.to_thread(collector.wait_for, lambda: collector.spans() and collector.logs() and collector.metrics())
    await exporter.close()
    assert len(collector.spans()) == 2
    assert {name.lower(): value for name, value in collector.headers[0].items()}["x-token"] == "t"
    assert exporter.sent == {"traces": 2, "logs": 1, "metrics": 1}
    assert not exporter.dropped


async def test_queued_spans_are_sent_on_close(collector: Any) -> None:
    exporter = Exporter(SENDERS[collector.protocol](collector.url, {}, 5.0), ENCODER, interval=60)
    exporter.export_spans([a_span()])
    await exporter.close()
    assert len(collector.spans()) == 1


async def test_spans_are_retried_until_the_collector_recovers(collector: Any) -> None:
    collector.behaviour = "unavailable"
    exporter = exporter_to(collector)
    exporter.export_spans([a_span(number) for number in range(1, 6)])
    await asyncio.to_thread(collector.wait_for, lambda: collector.attempts >= 1)
    collector.behaviour = "healthy"
    await asyncio.to_thread(collector.wait_for, lambda: len(collector.spans()) == 5)
    await exporter.close()
    assert exporter.failures["traces"] >= 1
    assert not exporter.dropped


async def test_rejected_spans_are_dropped_and_counted(collector: Any) -> None:
    collector.behaviour = "rejecting"
    exporter = exporter_to(collector)
    exporter.export_spans([a_span(), a_span(2)])
    await wait_until(lambda: exporter.dropped["traces"] == 2)
    await exporter.close()


@pytest.mark.parametrize("behaviour", ["unavailable", "slow", "resetting"])
async def test_failing_collector_neither_blocks_callers_nor_grows_the_queue(collector: Any, behaviour: Any) -> None:
    collector.behaviour = behaviour
    exporter = exporter_to(collector, timeout=0.2, max_queued=100, batch_size=10)
    exporter.export_spans([a_span()])
    await asyncio.to_thread(collector.wait_for, lambda: collector.attempts >= 1)
    began = time.perf_counter()
    for number in range(1, 5001):
        exporter.export_spans([a_span(number)])
    assert time.perf_counter() - began < 1.0
    assert exporter.waiting <= 100
    assert exporter.dropped["traces"] >= 4800
    collector.released.set()
    await exporter.close()


async def test_unreachable_collector_only_increments_counters(collector: Any) -> None:
    exporter = exporter_to(collector, timeout=1.0, url="http://127.0.0.1:9", max_queued=5)
    for number in range(1, 11):
        exporter.export_spans([a_span(number)])
    assert exporter.dropped["traces"] >= 4
    await wait_until(lambda: exporter.failures["traces"] > 0)
    await exporter.close()
