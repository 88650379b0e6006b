"""Call metrics: families, Prometheus text, several workers, and bounded cardinality."""

import asyncio
import re
from typing import Any

import pytest

from gateway.contract import Call, ClientProfile
from gateway.contract.trace_position import UpstreamHop
from gateway.errors import Fault, ForeignError, Kind
from gateway.state.bus import MemoryBus
from gateway.telemetry.metric_families import (
    Histogram,
    MetricFamily,
    family_from_json,
    sum_families,
    to_prometheus_text,
)
from gateway.telemetry.metrics import MAX_CELLS, STAGE_SAMPLE_INTERVAL, CallMetrics
from gateway.telemetry.session_metrics import SessionDurations
from gateway.telemetry.worker_metrics import WorkerMetrics
from tests.gateway.fakes import a_call, a_route


def record_calls(*calls: tuple[Call, BaseException | None]) -> dict[str, str]:
    """Record the calls and return the values of the Prometheus text, by name and labels."""
    metrics = CallMetrics()
    for call, exc in calls:
        if isinstance(exc, Fault):
            call.record.outcome = exc.kind.value
        elif isinstance(exc, ForeignError):
            call.record.outcome = f"error:{exc.code}"
        metrics.record(call, None, exc)
    return lines(to_prometheus_text(metrics.families()))


def lines(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_calls_are_counted_by_tenant_backend_tool_and_outcome() -> None:
    samples = record_calls((a_call(), None), (a_call(), None), (a_call(), Fault(Kind.RATE_LIMITED, "no")))
    labels = 'tenant="acme",backend="lab",tool="lab.echo",method="tools/call"'
    assert samples[f'gatehouse_calls_total{{{labels},outcome="ok"}}'] == "2"
    assert samples[f'gatehouse_calls_total{{{labels},outcome="rate_limited"}}'] == "1"
    assert samples['gatehouse_limit_refusals_total{tenant="acme"}'] == "1"
    assert samples['gatehouse_call_duration_seconds_count{tenant="acme",backend="lab"}'] == "3"


def test_histograms_follow_the_opentelemetry_conventions() -> None:
    call = a_call()
    hop = UpstreamHop("lab", "c" * 16, "http", ("10.0.0.1", 3001))
    hop.ended, hop.protocol = hop.started + 30_000_000, "2025-11-25"
    call.record.hops = [hop]
    samples = record_calls((call, None), (a_call(), ForeignError(-32000, "no")))
    about = 'mcp_method_name="tools/call",gen_ai_tool_name="lab.echo",gen_ai_operation_name="execute_tool"'
    more = 'mcp_protocol_version="2026-07-28",network_transport="tcp",network_protocol_name="http"'
    name = "mcp_server_operation_duration_seconds"
    assert samples[f'{name}_bucket{{{about},{more},le="300"}}'] == "1"
    assert samples[f'{name}_count{{{about},error_type="-32000",{more}}}'] == "1"
    bounds = [float(found[1]) for key in samples if (found := re.match(rf'{name}_bucket.*,{more},le="([0-9.]+)"', key))]
    assert sorted(set(bounds)) == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
    client = f"mcp_client_operation_duration_seconds_bucket{{{about}," + more.replace("2026-07-28", "2025-11-25")
    where = 'server_address="10.0.0.1",server_port="3001",backend="lab"'
    assert samples[f'{client},{where},le="0.02"}}'] == "0"
    assert samples[f'{client},{where},le="0.05"}}'] == "1"


def test_stage_durations_are_sampled_from_one_call_in_eight() -> None:
    metrics = CallMetrics()
    for _ in range(STAGE_SAMPLE_INTERVAL + 1):
        call = a_call()
        call.record.stages = ("trace", "dispatch")
        call.record.entered_at = [call.record.started, call.record.started + 5_000]
        metrics.record(call)
    samples = lines(to_prometheus_text(metrics.families()))
    assert samples['gatehouse_stage_duration_seconds_count{stage="trace"}'] == "2"
    assert samples['gatehouse_stage_duration_seconds_bucket{stage="trace",le="1e-05"}'] == "2"


def test_each_session_is_counted_once() -> None:
    old = ClientProfile("2025-11-25", {}, session="s1")
    assert record_calls((a_call(client=old), None), (a_call(client=old), None))["gatehouse_sessions"] == "1"


def test_duration_of_an_idle_session_is_recorded() -> None:
    now = [0.0]
    metrics = CallMetrics(clock=lambda: now[0])
    call = a_call(client=ClientProfile("2025-11-25", {}, session="s1"))
    for at in (100.0, 140.0):
        now[0] = at
        metrics.record(call)
    assert "mcp_server_session_duration_seconds" not in to_prometheus_text(metrics.families())
    now[0] = 441.0
    for _ in range(2):  # recorded once, no matter how often it is read
        samples = lines(to_prometheus_text(metrics.families()))
        labels = 'mcp_protocol_version="2025-11-25",network_transport="tcp",network_protocol_name="http"'
        assert samples[f"mcp_server_session_duration_seconds_sum{{{labels}}}"] == "40"
        assert samples[f"mcp_server_session_duration_seconds_count{{{labels}}}"] == "1"
        assert samples["gatehouse_sessions"] == "0"


def test_duration_of_an_idle_upstream_session_is_recorded() -> None:
    now = [0.0]
    metrics = CallMetrics(clock=lambda: now[0])
    for at in (100.0, 130.0):
        now[0] = at
        call = a_call()
        hop = UpstreamHop("upstream", "b" * 16, "http", ("upstream.example", 8443))
        hop.protocol, hop.session = "2025-11-25", "there"
        call.record.hops = [hop]
        metrics.record(call)
    now[0] = 431.0
    labels = (
        'mcp_protocol_version="2025-11-25",network_transport="tcp",network_protocol_name="http",'
        'server_address="upstream.example",server_port="8443",backend="upstream"'
    )
    assert lines(to_prometheus_text(metrics.families()))[f"mcp_client_session_duration_seconds_sum{{{labels}}}"] == "30"


def test_ended_sessions_are_removed_without_reading_metrics() -> None:
    now = [0.0]
    times = SessionDurations(lambda: now[0])
    for number in range(10_000):
        now[0] = float(number)
        times.begin(str(number), ())
    assert len(times) <= 2_000


def test_arbitrary_names_and_codes_create_no_series() -> None:
    calls: list[tuple[Call, BaseException | None]] = []
    for number in range(200):
        calls.append((a_call(params={"name": f"unknown-{number}"}, route=None), Fault(Kind.NOT_FOUND, "no")))
        read = a_call("resources/read", {"uri": f"own:{number}"}, route=a_route(canonical=f"lab:own:{number}"))
        calls.append((read, None))
        calls.append((a_call(), ForeignError(1000 + number, "no")))
    samples = [key for key in record_calls(*calls) if key.startswith("gatehouse_calls_total")]
    assert len(samples) == 3
    assert not [key for key in samples if "own:" in key or "unknown" in key]


def test_number_of_series_is_bounded() -> None:
    metrics = CallMetrics()
    for number in range(MAX_CELLS + 500):
        metrics.record(a_call(route=a_route(canonical=f"lab.tool{number}")))
    calls = next(family for family in metrics.families() if family.name == "gatehouse.calls")
    assert len(calls.points) <= MAX_CELLS + 1
    assert sum(calls.points.values()) == MAX_CELLS + 500  # type: ignore[arg-type]


def test_label_value_is_escaped() -> None:
    family = MetricFamily("a.b", "Help.", "gauge")
    family.add(1, ("x", 'quo"te\nnew\\line'))
    assert to_prometheus_text([family]).splitlines()[2] == r'a_b{x="quo\"te\nnew\\line"} 1'


def test_families_of_several_workers_are_combined() -> None:
    def one(value: float) -> list[MetricFamily]:
        total, worst = MetricFamily("t", "T.", "counter"), MetricFamily("w", "W.", "gauge", aggregation="max")
        total.add(value, ("a", "b"))
        worst.add(value)
        histogram = MetricFamily("h", "H.", "histogram", "s")
        times = Histogram((1.0,))
        times.observe(value)
        histogram.add(times)
        return [family_from_json(family.to_json()) for family in (total, worst, histogram)]

    samples = lines(to_prometheus_text(sum_families([one(0.5), one(2.0)])))
    assert (samples['t_total{a="b"}'], samples["w"]) == ("2.5", "2")
    assert (samples['h_seconds_bucket{le="1"}'], samples["h_seconds_count"], samples["h_seconds_sum"]) == (
        "1",
        "2",
        "2.5",
    )


async def test_metrics_of_one_group_of_workers_are_summed() -> None:
    bus = MemoryBus("w1")

    def own(value: float) -> Any:
        def families() -> list[MetricFamily]:
            family = MetricFamily("t", "T.", "counter")
            family.add(value)
            return [family]

        return families

    class BusView:
        """The same bus as seen by another worker."""

        def __init__(self, worker: str) -> None:
            self.worker = worker

        def __getattr__(self, name: str) -> Any:
            return getattr(bus, name)

    mine, peer, other = (
        WorkerMetrics(BusView("w1"), "g", 2, own(1)),  # type: ignore[arg-type]
        WorkerMetrics(BusView("w2"), "g", 2, own(10)),  # type: ignore[arg-type]
        WorkerMetrics(BusView("w3"), "other", 2, own(100)),  # type: ignore[arg-type]
    )
    tasks = [asyncio.create_task(each.run()) for each in (mine, peer, other)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            assert lines(to_prometheus_text(await mine.families()))["t_total"] == "11"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("kind", "unit", "name"), [("counter", "s", "a_b_seconds_total"), ("gauge", "By", "a_b_bytes")]
)
def test_prometheus_name_ends_in_its_unit(kind: Any, unit: str, name: str) -> None:
    assert MetricFamily("a.b", "", kind, unit).prometheus_name == name
