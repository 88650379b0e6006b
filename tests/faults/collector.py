"""The collector is gone, slow or resets connections: no call fails, none costs more, and memory stays bounded."""

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.driver import close_lanes, drive, open_lanes
from bench.wire import Door
from tests.faults.kills import UNLIMITED
from tests.flows.process import Served, serving, write_settings
from tests.peers.collector import COLLECTORS, Collector, Mood

ROUNDS: Final = 5
CALLS: Final = 4000
WARM: Final = 9000
"""More calls than a queue holds: what grows after them would grow for ever."""
DEAD: Final = "http://127.0.0.1:9"
PLAIN: Final = {"plain": {"module": "tests.flows.fixtures.plain"}}
MOODS: Final[tuple[Mood, ...]] = ("slow", "resetting")


@dataclass(frozen=True)
class Watched:
    """Of the worst of the three."""

    cpu: float
    """CPU of a call as a multiple of what it is with a collector that is well: the median of the rounds."""
    failed: int
    grown: float
    """Megabytes by which memory grew from the first round to the last."""
    worst: str


async def bad_collectors(folder: Path, rounds: int = ROUNDS, calls: int = CALLS) -> Watched:
    """Every call is kept and sent, which is the most that telemetry can cost."""
    with ExitStack() as stack:
        collectors = {mood: stack.enter_context(COLLECTORS["http"]()) for mood in ("well", *MOODS)}
        for mood in MOODS:
            collectors[mood].mood = mood
        urls = {mood: collector.url for mood, collector in collectors.items()} | {"dead": DEAD}
        gateways = {mood: stack.enter_context(_gateway(folder / mood, url)) for mood, url in urls.items()}
        try:
            for served in gateways.values():
                await _round(served, WARM)
            before = {mood: served.rss() for mood, served in gateways.items()}
            spent: dict[str, list[float]] = {mood: [] for mood in gateways}
            failed = 0
            for _ in range(rounds):
                for mood, served in gateways.items():
                    cost, errors = await _round(served, calls)
                    spent[mood].append(cost)
                    failed += errors
            grown = max(served.rss() - before[mood] for mood, served in gateways.items()) / 1e6
        finally:
            _release(collectors)
    ratios = {
        mood: statistics.median(bad / well for bad, well in zip(spent[mood], spent["well"], strict=True))
        for mood in ("dead", *MOODS)
    }
    worst = max(ratios, key=lambda mood: ratios[mood])
    return Watched(ratios[worst], failed, grown, worst)


def _release(collectors: dict[str, Collector]) -> None:
    for collector in collectors.values():
        collector.released.set()


async def _round(served: Served, calls: int) -> tuple[float, int]:
    """Seconds of processor time for each call, and how many failed."""
    lanes = await open_lanes([Door(served.port, "modern", "plain_echo", served.key) for _ in range(8)])
    try:
        before = served.cpu()
        tally = await drive(lanes, seconds=120, limit=calls)
        return (served.cpu() - before) / tally.calls, tally.errors
    finally:
        close_lanes(lanes)


@contextmanager
def _gateway(folder: Path, collector: str) -> Iterator[Served]:
    folder.mkdir(parents=True)
    telemetry = {"traces": {"share": 1.0}, "otlp": {"url": collector, "logs": True}, "store": {"enabled": False}}
    quiet = {"format": "json", "level": "error"}
    write_settings(folder, backends=PLAIN, limits=UNLIMITED, log=quiet, telemetry=telemetry)
    with serving(folder) as served:
        yield served
