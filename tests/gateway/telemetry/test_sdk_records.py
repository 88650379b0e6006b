"""What arrives at a collector equals what the encoder of release 0.1.0 sent for the same telemetry."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

from gateway.telemetry.otlp_exporters import open_exporters
from gateway.telemetry.sdk_records import SdkRecords
from tests.gateway.telemetry import otlp_samples
from tests.peers.collector import COLLECTORS, Collector

GOLDEN = json.loads((Path(__file__).parent / "golden" / "otlp.json").read_text())
"""Recorded with the gateway's own encoder of release 0.1.0, which the official exporters replaced."""


@pytest.fixture(params=["http", "grpc"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    with COLLECTORS[request.param]() as collector:
        collector.protocol = request.param
        yield collector


@pytest.fixture
def received(collector: Any) -> dict[str, list[Any]]:
    """Export the samples through the official exporters."""
    records = SdkRecords(otlp_samples.RESOURCE, otlp_samples.VERSION, detect=False)
    exporters = open_exporters(collector.url, {}, 5.0, collector.protocol)
    spans = [records.span(span) for span in otlp_samples.spans()]
    metrics = records.metrics(otlp_samples.families(), otlp_samples.START, otlp_samples.NOW)
    logs = [records.readable_log(record) for record in otlp_samples.logs()]
    assert exporters.traces.export(spans) is SpanExportResult.SUCCESS
    assert exporters.metrics.export(metrics) is MetricExportResult.SUCCESS
    assert exporters.logs.export(logs) is LogRecordExportResult.SUCCESS
    for exporter in exporters:
        exporter.shutdown()
    return collector.requests


@pytest.mark.parametrize("part", ["resources", "scopes", "spans", "metrics", "logs"])
def test_export_equals_the_recorded_one(received: dict[str, list[Any]], part: str) -> None:
    assert json.loads(json.dumps(otlp_samples.describe(received)[part])) == GOLDEN[part]


def test_span_flags_tell_whether_the_parent_is_remote(received: dict[str, list[Any]]) -> None:
    spans = [span for request in received["traces"] for span in request.resource_spans[0].scope_spans[0].spans]
    remote = {span.span_id.hex() for span in spans if span.flags & 0x200}
    assert all(span.flags & 0x100 for span in spans)
    assert remote == {"2" * 16}  # the only sample whose parent is a client's span


def test_stages_shorter_than_the_least_are_left_out() -> None:
    records = SdkRecords(otlp_samples.RESOURCE, "1", min_stage_seconds=2e-6)
    span = otlp_samples.spans()[0]  # trace and limit take 1.5 µs
    exported = dict(records.span(span).attributes or {})
    assert [name for name in exported if ".stage." in name] == ["gatehouse.stage.authorize", "gatehouse.stage.dispatch"]
    assert {name for name, _ in span.attributes} - exported.keys() == {"gatehouse.stage.trace", "gatehouse.stage.limit"}


def test_detected_resource_attributes_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    resource = SdkRecords(otlp_samples.RESOURCE, "1").span(otlp_samples.spans()[0]).resource
    assert resource.attributes["deployment.environment.name"] == "test"
    assert resource.attributes["telemetry.sdk.language"] == "python"
    assert resource.attributes["service.instance.id"] == "host:1"
