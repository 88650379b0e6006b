"""The OTLP collector is down, slow or resets connections: no call fails or costs more, and memory is bounded."""

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.driver import close_connections, drive, open_connections
from bench.wire import Endpoint
from tests.faults.server_kills import UNLIMITED
from tests.flows.process import Served, serving, write_settings
from tests.peers.collector import COLLECTORS, Behaviour, Collector

ROUNDS: Final = 5
CALLS: Final = 4000
WARM_UP_CALLS: Final = 9000
"""More calls than a queue holds: growth after the warm-up would be unbounded."""
DEAD: Final = "http://127.0.0.1:9"
PLAIN: Final = {"plain": {"module": "tests.flows.fixtures.plain"}}
BEHAVIOURS: Final[tuple[Behaviour, ...]] = ("slow", "resetting")


@dataclass(frozen=True)
class CollectorResult:
    """Measurements of the worst of the three faults."""

    cpu: float
    """CPU per call relative to a healthy collector: the median of the rounds."""
    failed: int
    growth: float
    """Memory growth from the first round to the last, in megabytes."""
    worst: str


async def run_faulty_collectors(folder: Path, rounds: int = ROUNDS, calls: int = CALLS) -> CollectorResult:
    """All calls are sampled and exported, which is the highest cost of telemetry."""
    with ExitStack() as stack:
        collectors = {behaviour: stack.enter_context(COLLECTORS["http"]()) for behaviour in ("healthy", *BEHAVIOURS)}
        for behaviour in BEHAVIOURS:
            collectors[behaviour].behaviour = behaviour
        urls = {behaviour: collector.url for behaviour, collector in collectors.items()} | {"dead": DEAD}
        gateways = {
            behaviour: stack.enter_context(_gateway(folder / behaviour, url)) for behaviour, url in urls.items()
        }
        try:
            for served in gateways.values():
                await _round(served, WARM_UP_CALLS)
            before = {behaviour: served.rss() for behaviour, served in gateways.items()}
            spent: dict[str, list[float]] = {behaviour: [] for behaviour in gateways}
            failed = 0
            for _ in range(rounds):
                for behaviour, served in gateways.items():
                    cost, errors = await _round(served, calls)
                    spent[behaviour].append(cost)
                    failed += errors
            growth = max(served.rss() - before[behaviour] for behaviour, served in gateways.items()) / 1e6
        finally:
            _release(collectors)
    ratios = {
        behaviour: statistics.median(
            failing / healthy for failing, healthy in zip(spent[behaviour], spent["healthy"], strict=True)
        )
        for behaviour in ("dead", *BEHAVIOURS)
    }
    worst = max(ratios, key=lambda behaviour: ratios[behaviour])
    return CollectorResult(ratios[worst], failed, growth, worst)


def _release(collectors: dict[str, Collector]) -> None:
    for collector in collectors.values():
        collector.released.set()


async def _round(served: Served, calls: int) -> tuple[float, int]:
    """Returns the CPU seconds per call and the number of failed calls."""
    connections = await open_connections([Endpoint(served.port, "modern", "plain_echo", served.key) for _ in range(8)])
    try:
        before = served.cpu()
        tally = await drive(connections, seconds=120, limit=calls)
        return (served.cpu() - before) / tally.calls, tally.errors
    finally:
        close_connections(connections)


@contextmanager
def _gateway(folder: Path, collector: str) -> Iterator[Served]:
    folder.mkdir(parents=True)
    telemetry = {"traces": {"share": 1.0}, "otlp": {"url": collector, "logs": True}, "store": {"enabled": False}}
    log_settings = {"format": "json", "level": "error"}
    write_settings(folder, backends=PLAIN, limits=UNLIMITED, log=log_settings, telemetry=telemetry)
    with serving(folder) as served:
        yield served
