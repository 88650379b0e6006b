"""Span processors and span exporters of installed packages, added by entry point."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.contract.trace_position import TracePosition
from gateway.telemetry.export import Exporter, load_plugins
from gateway.telemetry.otlp_exporters import open_exporters
from gateway.telemetry.plugins import EXPORTERS, PROCESSORS, PluginError, find_plugins
from gateway.telemetry.sdk_records import SdkRecords
from gateway.telemetry.span import Span
from tests.peers.collector import Collector, http_collector
from tests.repo.documents import ROOT, blocks

RECORDS = SdkRecords({"service.name": "gatehouse"}, "1")
(PLUGIN,) = (block.text for block in blocks(ROOT / "docs" / "observe.md", "plugin"))
"""The example of the documentation."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    """Install a package with one module and its entry points, as an installer would: files and metadata on sys.path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(source: str, entry_points: str) -> None:
        (tmp_path / "slow_calls.py").write_text(source)
        metadata = tmp_path / "slow_calls-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-calls\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entry_points)

    yield run
    sys.modules.pop("slow_calls", None)


def a_span(number: int, seconds: float = 0.0) -> Span:
    position = TracePosition(f"{number:032x}", f"{number:016x}", "", True)
    return Span("tools/call lab.echo", "server", position, 10**18, 10**18 + int(seconds * 1e9), [("n", number)])


def entry(group: str, target: str) -> str:
    return f"[{group}]\nmine = slow_calls:{target}\n"


async def export(spans: list[Span], collector: Collector | None = None) -> Exporter:
    exporters = open_exporters(collector.url, {}, 5.0, "http") if collector is not None else None
    exporter = Exporter(RECORDS, exporters, load_plugins(find_plugins()))
    exporter.export_spans(spans)
    await exporter.close()
    return exporter


RECORDING = """
from opentelemetry.sdk.trace import SpanProcessor

SEEN, CLOSED = [], []

class Recording(SpanProcessor):
    def on_end(self, span):
        SEEN.append(span)

    def shutdown(self):
        CLOSED.append(True)
"""


async def test_installed_span_processor_sees_every_exported_span(install: Any) -> None:
    install(RECORDING, entry(PROCESSORS, "Recording"))
    with http_collector() as collector:
        exporter = await export([a_span(number) for number in range(1, 3001)], collector)
    import slow_calls  # type: ignore[import-not-found]

    ids = [f"{span.context.span_id:016x}" for span in slow_calls.SEEN]
    assert ids == [span.span_id.hex() for span in collector.spans()]
    assert len(ids) == 3000 == exporter.sent["traces"]
    assert dict(slow_calls.SEEN[0].attributes) == {"n": 1}
    assert slow_calls.CLOSED == [True]


async def test_installed_span_exporter_needs_no_collector(install: Any) -> None:
    source = """
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

made = InMemorySpanExporter()

def make():
    return made
"""
    install(source, entry(EXPORTERS, "make"))
    exporter = await export([a_span(number) for number in range(1, 101)])
    import slow_calls  # type: ignore[import-not-found]

    assert [span.attributes["n"] for span in slow_calls.made.get_finished_spans()] == list(range(1, 101))
    assert not exporter.dropped


async def test_failing_span_processor_does_not_disturb_the_export(install: Any, caplog: Any) -> None:
    source = """
from opentelemetry.sdk.trace import SpanProcessor

class Broken(SpanProcessor):
    def on_end(self, span):
        raise OSError

    def shutdown(self):
        raise OSError
"""
    install(source, entry(PROCESSORS, "Broken"))
    with http_collector() as collector:
        await export([a_span(1), a_span(2)], collector)
    assert len(collector.spans()) == 2
    assert [record.getMessage() for record in caplog.records if record.name == "gatehouse.telemetry"] == [
        "telemetry: span processor Broken failed; logged once",
        "telemetry: span processor Broken failed to shut down",
    ]


def test_entry_point_that_cannot_be_loaded_names_its_package(install: Any) -> None:
    install("raise RuntimeError('no licence')", entry(PROCESSORS, "Missing"))
    with pytest.raises(PluginError, match=r"'mine' of slow-calls in gatehouse\.span_processors.*no licence"):
        load_plugins(find_plugins())


async def test_example_of_the_documentation_prints_slow_calls(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    install(PLUGIN, entry(PROCESSORS, "SlowCalls"))
    await export([a_span(1, 0.2), a_span(2, 3.0)])
    assert capsys.readouterr().out == "3.0 s tools/call lab.echo 00000000000000000000000000000002\n"


async def test_gateway_passes_the_spans_of_calls_to_an_installed_processor(install: Any, start: Any) -> None:
    install(RECORDING, entry(PROCESSORS, "Recording"))
    backends = {"core": {"module": "backends.core"}}
    async with start(backends=backends, telemetry={"traces": {"share": 1.0}}) as gateway:
        assert "result" in await gateway.call("core_ping")
    import slow_calls  # type: ignore[import-not-found]

    assert "tools/call core.ping" in [span.name for span in slow_calls.SEEN]
