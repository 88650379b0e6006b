"""The exporter with the official OTLP exporters, against real collectors of both protocols that may fail."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.contract.trace_position import TracePosition
from gateway.telemetry.export import CLOSE_TIMEOUT, Exporter, ExportLimits, LogSender
from gateway.telemetry.log_records import ExportFailed, ExportHandler, LogRecord
from gateway.telemetry.metric_families import MetricFamily
from gateway.telemetry.otlp_exporters import OtlpExporters, open_exporters
from gateway.telemetry.sdk_records import SCHEMA_URL, SdkRecords
from gateway.telemetry.span import Span
from tests.peers.collector import COLLECTORS, Collector, attributes

RECORDS = SdkRecords({"service.name": "gatehouse", "service.instance.id": "i"}, "1.2.3", detect=False)


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


def a_gauge() -> MetricFamily:
    family = MetricFamily("gatehouse.streams", "Streams.", "gauge")
    family.add(2)
    return family


@pytest.fixture(params=["http", "grpc"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    with COLLECTORS[request.param]() as collector:
        collector.protocol = request.param
        yield collector


def exporters_to(collector: Any, timeout: float = 5.0, url: str | None = None) -> OtlpExporters:
    return open_exporters(url or collector.url, {"X-Token": "t"}, timeout, collector.protocol)


def exporter_to(collector: Any, timeout: float = 5.0, url: str | None = None, **options: Any) -> Exporter:
    limits = ExportLimits(**{"interval": 0.02, **options})
    return Exporter(RECORDS, exporters_to(collector, timeout, url), limits=limits)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


# ---- log records


def test_log_records_are_exported_without_secrets() -> None:
    records: list[LogRecord] = []
    handler = ExportHandler(records.append)
    try:
        raise ValueError("Bearer hunter2")
    except ValueError:
        cause = sys.exc_info()
    made = logging.LogRecord("gatehouse.x", logging.ERROR, "", 1, "token Bearer hunter2", (), cause)
    made.__dict__ |= {"correlation_id": "cid", "trace_id": "a" * 32, "span_id": "b" * 16}
    handler.emit(made)
    for own in ("gatehouse.telemetry", "opentelemetry.exporter.otlp.proto.http", "urllib3.connectionpool", "grpc"):
        handler.emit(logging.LogRecord(own, logging.ERROR, "", 1, "itself", (), None))
    (record,) = records
    assert (record.trace_id, record.span_id, record.level) == ("a" * 32, "b" * 16, "error")
    assert dict(record.attributes)["gatehouse.correlation_id"] == "cid"
    assert "hunter2" not in str(record)


# ---- sending


async def test_collector_receives_all_signals_and_configured_headers(collector: Any) -> None:
    exporter = exporter_to(collector)
    exporter.export_spans([a_span(), a_span(2)])
    exporter.export_log(LogRecord(1, "info", "words"))
    exporter.export_metrics([a_gauge()])
    await asyncio.to_thread(collector.wait_for, lambda: collector.spans() and collector.logs() and collector.metrics())
    await exporter.close()
    assert len(collector.spans()) == 2
    assert {name.lower(): value for name, value in collector.headers[0].items()}["x-token"] == "t"
    assert exporter.sent == {"traces": 2, "logs": 1, "metrics": 1}
    assert not exporter.dropped


async def test_resource_scope_and_schema_of_each_signal_arrive(collector: Any) -> None:
    exporter = exporter_to(collector)
    exporter.export_spans([a_span()])
    exporter.export_log(LogRecord(1, "info", "words"))
    exporter.export_metrics([a_gauge()])
    await exporter.close()
    (traces,), (metrics,), (logs,) = (collector.requests[signal] for signal in ("traces", "metrics", "logs"))
    spans, points, records = traces.resource_spans[0], metrics.resource_metrics[0], logs.resource_logs[0]
    scopes = (spans.scope_spans[0], points.scope_metrics[0], records.scope_logs[0])
    for resource, scope in zip((spans, points, records), scopes, strict=True):
        assert attributes(resource.resource) == {"service.name": "gatehouse", "service.instance.id": "i"}
        assert (scope.scope.name, scope.scope.version) == ("gatehouse", "1.2.3")
        assert (resource.schema_url, scope.schema_url) == (SCHEMA_URL, SCHEMA_URL)


async def test_queued_spans_are_sent_on_close(collector: Any) -> None:
    exporter = exporter_to(collector, interval=60)
    exporter.export_spans([a_span(number) for number in range(1, 2001)])
    exporter.export_log(LogRecord(1, "info", "words"))
    exporter.export_metrics([a_gauge()])
    await exporter.close()
    assert (len(collector.spans()), len(collector.logs()), len(collector.metrics())) == (2000, 1, 1)
    assert exporter.waiting == 0


async def test_spans_that_were_kept_without_being_sampled_are_exported(collector: Any) -> None:
    exporter = exporter_to(collector)
    exporter.export_spans([a_span(position=TracePosition("1" * 32, "2" * 16, "", False))])
    await exporter.close()
    (span,) = collector.spans()
    assert (span.span_id.hex(), span.parent_span_id) == ("2" * 16, b"")


async def test_values_that_otlp_cannot_represent_do_not_spoil_their_batch(collector: Any) -> None:
    odd = [("huge", 2**70), ("odd \ud800", "\udc00"), ("list", [1]), ("none", None)]
    exporter = exporter_to(collector)
    exporter.export_spans([a_span(attributes=odd, name="n \ud800", error="e \ud800"), a_span(2)])
    exporter.export_log(LogRecord(1, "info", "b \ud800", odd))
    await exporter.close()
    first, second = collector.spans()
    expected = {"huge": str(2**70), "odd ?": "?", "list": "[1]", "none": "None"}
    assert (first.name, first.status.message, attributes(first)) == ("n ?", "e ?", expected)
    assert second.name == "tools/call lab.echo"
    (record,) = collector.logs()
    assert (record.body.string_value, attributes(record)) == ("b ?", expected)
    assert not exporter.dropped


async def test_spans_are_retried_until_the_collector_recovers(collector: Any) -> None:
    collector.behaviour = "unavailable"
    exporter = exporter_to(collector)
    exporter.export_spans([a_span(number) for number in range(1, 6)])
    await asyncio.to_thread(collector.wait_for, lambda: collector.attempts >= 1)
    collector.behaviour = "healthy"
    await asyncio.to_thread(collector.wait_for, lambda: len(collector.spans()) == 5)
    await exporter.close()
    assert collector.attempts >= 2
    assert not exporter.dropped


class RecordingHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """The records that reach the root logger."""
    handler = RecordingHandler()
    logging.getLogger().addHandler(handler)
    with caplog.at_level(logging.INFO, "gatehouse.telemetry"):
        yield handler.records
    logging.getLogger().removeHandler(handler)


async def test_rejected_items_are_dropped_and_counted_and_the_reason_is_logged_once(
    collector: Any, logged: list[logging.LogRecord]
) -> None:
    collector.behaviour = "rejecting"
    exporter = exporter_to(collector)
    exporter.export_spans([a_span(), a_span(2)])
    await wait_until(lambda: exporter.dropped["traces"] == 2)
    exporter.export_spans([a_span(3)])
    await wait_until(lambda: exporter.dropped["traces"] == 3)
    assert exporter.failures["traces"] == 2
    collector.behaviour = "healthy"
    exporter.export_spans([a_span(4)])
    await wait_until(lambda: exporter.sent["traces"] == 1)
    await exporter.close()
    refused, accepted = [record.getMessage() for record in logged]
    assert "collector does not accept traces" in refused
    assert ("400" if collector.protocol == "http" else "INVALID_ARGUMENT") in refused
    assert accepted == "telemetry: collector accepts traces again"


@pytest.mark.parametrize("behaviour", ["unavailable", "slow", "resetting"])
async def test_failing_collector_neither_blocks_callers_nor_grows_the_queue(collector: Any, behaviour: Any) -> None:
    collector.behaviour = behaviour
    exporter = exporter_to(collector, timeout=0.2, max_queued=100, batch_size=10)
    exporter.export_spans([a_span()])
    await asyncio.to_thread(collector.wait_for, lambda: collector.attempts >= 1)
    began, longest = time.perf_counter(), 0
    for number in range(1, 5001):
        exporter.export_spans([a_span(number)])
        longest = max(longest, exporter.waiting)
    assert time.perf_counter() - began < 1.0
    assert longest <= 2 * 100 + 2 * 10  # queued by calls, waiting for a batch, and two batches
    collector.released.set()
    await exporter.close()
    assert sum(exporter.sent.values()) + sum(exporter.dropped.values()) + exporter.waiting == 5001
    assert exporter.dropped["traces"] >= 2000


async def test_unreachable_collector_only_increments_counters(collector: Any) -> None:
    exporter = exporter_to(collector, timeout=1.0, url="http://127.0.0.1:9", max_queued=5)
    exporter.export_spans([a_span(number) for number in range(1, 11)])
    assert exporter.dropped["traces"] == 10
    exporter.export_spans([a_span()])
    exporter.export_metrics([a_gauge()])
    await wait_until(lambda: exporter.failures["traces"] > 0 and exporter.failures["metrics"] > 0)
    await exporter.close()


async def test_close_gives_up_at_its_deadline_when_the_collector_hangs(collector: Any) -> None:
    collector.behaviour = "slow"
    exporter = exporter_to(collector, timeout=60.0)
    exporter.export_spans([a_span()])
    exporter.export_log(LogRecord(1, "info", "words"))
    exporter.export_metrics([a_gauge()])
    await asyncio.to_thread(collector.wait_for, lambda: collector.attempts >= 3)
    began = time.monotonic()
    await exporter.close()
    assert CLOSE_TIMEOUT * 0.5 < time.monotonic() - began < CLOSE_TIMEOUT + 2
    collector.released.set()


async def test_proxies_of_the_environment_are_not_used(collector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    exporter = exporter_to(collector)
    exporter.export_spans([a_span()])
    await exporter.close()
    assert len(collector.spans()) == 1


def test_log_sender_waits_for_the_collector_and_reports_a_refusal(collector: Any) -> None:
    sender = LogSender(RECORDS, exporters_to(collector))
    sender.send([LogRecord(1, "info", "words")])
    assert [record.body.string_value for record in collector.logs()] == ["words"]
    collector.behaviour = "rejecting"
    with pytest.raises(ExportFailed, match=r"400|INVALID_ARGUMENT"):
        sender.send([LogRecord(2, "info", "words")])
    sender.close()
