"""What calls are counted by, as text, in several workers, and without end to none of it."""

import asyncio
import re
from typing import Any

import pytest

from gateway.contract import Call, ClientProfile
from gateway.contract.trace_position import UpstreamHop
from gateway.errors import Fault, ForeignError, Kind
from gateway.state.bus import MemoryBus
from gateway.telemetry.metric_families import Histogram, MetricFamily, as_text, read_family, summed
from gateway.telemetry.metrics import MAX_CELLS, STAGES_EVERY, CallMetrics
from gateway.telemetry.session_metrics import SessionDurations
from gateway.telemetry.worker_metrics import WorkerMetrics
from tests.gateway.fakes import a_call, a_route


def counted(*calls: tuple[Call, BaseException | None]) -> dict[str, str]:
    """Each line of the text by its name and labels."""
    metrics = CallMetrics()
    for call, exc in calls:
        if isinstance(exc, Fault):
            call.record.outcome = exc.kind.value
        elif isinstance(exc, ForeignError):
            call.record.outcome = f"error:{exc.code}"
        metrics.told(call, None, exc)
    return lines(as_text(metrics.families()))


def lines(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_calls_are_counted_by_tenant_backend_tool_and_outcome() -> None:
    seen = counted((a_call(), None), (a_call(), None), (a_call(), Fault(Kind.RATE_LIMITED, "no")))
    labels = 'tenant="acme",backend="lab",tool="lab.echo",method="tools/call"'
    assert seen[f'gatehouse_calls_total{{{labels},outcome="ok"}}'] == "2"
    assert seen[f'gatehouse_calls_total{{{labels},outcome="rate_limited"}}'] == "1"
    assert seen['gatehouse_limit_refusals_total{tenant="acme"}'] == "1"
    assert seen['gatehouse_call_duration_seconds_count{tenant="acme",backend="lab"}'] == "3"


def test_the_conventions_histograms_have_their_names_buckets_and_attributes() -> None:
    call = a_call()
    hop = UpstreamHop("lab", "c" * 16, "http", ("10.0.0.1", 3001))
    hop.ended, hop.protocol = hop.started + 30_000_000, "2025-11-25"
    call.record.hops = [hop]
    seen = counted((call, None), (a_call(), ForeignError(-32000, "no")))
    about = 'mcp_method_name="tools/call",gen_ai_tool_name="lab.echo",gen_ai_operation_name="execute_tool"'
    more = 'mcp_protocol_version="2026-07-28",network_transport="tcp",network_protocol_name="http"'
    name = "mcp_server_operation_duration_seconds"
    assert seen[f'{name}_bucket{{{about},{more},le="300"}}'] == "1"
    assert seen[f'{name}_count{{{about},error_type="-32000",{more}}}'] == "1"
    bounds = [float(found[1]) for key in seen if (found := re.match(rf'{name}_bucket.*,{more},le="([0-9.]+)"', key))]
    assert sorted(set(bounds)) == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
    client = f"mcp_client_operation_duration_seconds_bucket{{{about}," + more.replace("2026-07-28", "2025-11-25")
    where = 'server_address="10.0.0.1",server_port="3001",backend="lab"'
    assert seen[f'{client},{where},le="0.02"}}'] == "0"
    assert seen[f'{client},{where},le="0.05"}}'] == "1"


def test_of_every_eighth_call_the_stages_are_measured() -> None:
    metrics = CallMetrics()
    for _ in range(STAGES_EVERY + 1):
        call = a_call()
        call.record.stages = ("trace", "dispatch")
        call.record.marks = [call.record.started, call.record.started + 5_000]
        metrics.told(call)
    seen = lines(as_text(metrics.families()))
    assert seen['gatehouse_stage_duration_seconds_count{stage="trace"}'] == "2"
    assert seen['gatehouse_stage_duration_seconds_bucket{stage="trace",le="1e-05"}'] == "2"


def test_sessions_are_counted_once_each() -> None:
    old = ClientProfile("2025-11-25", {}, session="s1")
    assert counted((a_call(client=old), None), (a_call(client=old), None))["gatehouse_sessions"] == "1"


def test_a_session_that_falls_silent_is_told_with_how_long_it_lasted() -> None:
    now = [0.0]
    metrics = CallMetrics(clock=lambda: now[0])
    call = a_call(client=ClientProfile("2025-11-25", {}, session="s1"))
    for at in (100.0, 140.0):
        now[0] = at
        metrics.told(call)
    assert "mcp_server_session_duration_seconds" not in as_text(metrics.families())
    now[0] = 441.0
    for _ in range(2):  # once, however often it is looked at
        told = lines(as_text(metrics.families()))
        labels = 'mcp_protocol_version="2025-11-25",network_transport="tcp",network_protocol_name="http"'
        assert told[f"mcp_server_session_duration_seconds_sum{{{labels}}}"] == "40"
        assert told[f"mcp_server_session_duration_seconds_count{{{labels}}}"] == "1"
        assert told["gatehouse_sessions"] == "0"


def test_a_session_at_a_server_is_told_likewise() -> None:
    now = [0.0]
    metrics = CallMetrics(clock=lambda: now[0])
    for at in (100.0, 130.0):
        now[0] = at
        call = a_call()
        hop = UpstreamHop("far", "b" * 16, "http", ("far.example", 8443))
        hop.protocol, hop.session = "2025-11-25", "there"
        call.record.hops = [hop]
        metrics.told(call)
    now[0] = 431.0
    labels = (
        'mcp_protocol_version="2025-11-25",network_transport="tcp",network_protocol_name="http",'
        'server_address="far.example",server_port="8443",backend="far"'
    )
    assert lines(as_text(metrics.families()))[f"mcp_client_session_duration_seconds_sum{{{labels}}}"] == "30"


def test_sessions_that_ended_are_let_go_also_where_nobody_looks() -> None:
    now = [0.0]
    times = SessionDurations(lambda: now[0])
    for number in range(10_000):
        now[0] = float(number)
        times.begin(str(number), ())
    assert len(times) <= 2_000


def test_what_a_client_or_backend_makes_up_makes_no_series() -> None:
    calls: list[tuple[Call, BaseException | None]] = []
    for number in range(200):
        calls.append((a_call(params={"name": f"made-up-{number}"}, route=None), Fault(Kind.NOT_FOUND, "no")))
        read = a_call("resources/read", {"uri": f"own:{number}"}, route=a_route(canonical=f"lab:own:{number}"))
        calls.append((read, None))
        calls.append((a_call(), ForeignError(1000 + number, "no")))
    seen = [key for key in counted(*calls) if key.startswith("gatehouse_calls_total")]
    assert len(seen) == 3
    assert not [key for key in seen if "own:" in key or "made-up" in key]


def test_the_number_of_series_is_bounded() -> None:
    metrics = CallMetrics()
    for number in range(MAX_CELLS + 500):
        metrics.told(a_call(route=a_route(canonical=f"lab.tool{number}")))
    calls = next(family for family in metrics.families() if family.name == "gatehouse.calls")
    assert len(calls.points) <= MAX_CELLS + 1
    assert sum(calls.points.values()) == MAX_CELLS + 500  # type: ignore[arg-type]


def test_a_label_cannot_end_its_line() -> None:
    family = MetricFamily("a.b", "Help.", "gauge")
    family.add(1, ("x", 'quo"te\nnew\\line'))
    assert as_text([family]).splitlines()[2] == r'a_b{x="quo\"te\nnew\\line"} 1'


def test_families_pass_between_workers_and_add_up() -> None:
    def one(value: float) -> list[MetricFamily]:
        total, worst = MetricFamily("t", "T.", "counter"), MetricFamily("w", "W.", "gauge", together="max")
        total.add(value, ("a", "b"))
        worst.add(value)
        spread = MetricFamily("h", "H.", "histogram", "s")
        times = Histogram((1.0,))
        times.observe(value)
        spread.add(times)
        return [read_family(family.as_json()) for family in (total, worst, spread)]

    seen = lines(as_text(summed([one(0.5), one(2.0)])))
    assert (seen['t_total{a="b"}'], seen["w"]) == ("2.5", "2")
    assert (seen['h_seconds_bucket{le="1"}'], seen["h_seconds_count"], seen["h_seconds_sum"]) == ("1", "2", "2.5")


async def test_one_reading_sums_the_workers_of_a_group_and_no_others() -> None:
    bus = MemoryBus("w1")

    def own(value: float) -> Any:
        def families() -> list[MetricFamily]:
            family = MetricFamily("t", "T.", "counter")
            family.add(value)
            return [family]

        return families

    class As:
        """The same bus, seen by another worker."""

        def __init__(self, worker: str) -> None:
            self.worker = worker

        def __getattr__(self, name: str) -> Any:
            return getattr(bus, name)

    mine, friend, stranger = (
        WorkerMetrics(As("w1"), "g", 2, own(1)),  # type: ignore[arg-type]
        WorkerMetrics(As("w2"), "g", 2, own(10)),  # type: ignore[arg-type]
        WorkerMetrics(As("w3"), "other", 2, own(100)),  # type: ignore[arg-type]
    )
    tasks = [asyncio.create_task(each.run()) for each in (mine, friend, stranger)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            assert lines(as_text(await mine.families()))["t_total"] == "11"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("kind", "unit", "shown"), [("counter", "s", "a_b_seconds_total"), ("gauge", "By", "a_b_bytes")]
)
def test_prometheus_names_end_in_their_unit(kind: Any, unit: str, shown: str) -> None:
    assert MetricFamily("a.b", "", kind, unit).shown == shown
