"""One run: every candidate started, warmed up, and measured in turns, so that noise falls on all alike."""

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.candidates import Candidate, NotStarted, Running, running
from bench.driver import Lane, Tally, close_lanes, drive, open_lanes
from bench.process import Cores, Server

_WARM_UP_CALLS = 3000


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. `budget` bounds the rounds in time: none begins after it."""

    concurrency: tuple[int, ...] = (1, 16, 64, 256)
    rounds: int = 5
    seconds: float = 1.5
    budget: float = 180.0


QUICK = Plan(rounds=2, seconds=0.6, budget=40.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """One candidate at one concurrency in one round; no calls when its connections were refused."""

    candidate: str
    concurrency: int
    round: int
    calls: int
    seconds: float
    cpu_us: float
    """CPU of the server's process tree per call."""
    driver_us: float
    """CPU of the load driver per call."""
    p50_us: float
    p99_us: float
    errors: int
    complaint: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """What is measured once of a candidate; `failure` says why it could not be measured at all."""

    candidate: Candidate
    start_seconds: float = 0.0
    idle_rss: int = 0
    final_rss: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    standings: tuple[Standing, ...]
    cells: tuple[Cell, ...]


async def measure(
    candidates: Sequence[Candidate], plan: Plan, cores: Cores, folder: Path, say: Callable[[str], None]
) -> Findings:
    with ExitStack() as stack:
        alive: list[tuple[Running, Standing]] = []
        failed: list[Standing] = []
        for candidate in candidates:
            say(f"starting {candidate.name}")
            try:
                run = stack.enter_context(running(candidate, folder / candidate.name, cores))
                alive.append((run, await _first_standing(run)))
            except NotStarted as exc:
                failed.append(Standing(candidate, failure=str(exc)))
        for run, _ in alive:
            await _warm_up(run)
        gc.collect()
        gc.freeze()
        began = time.perf_counter()  # of the rounds: some take minutes to start
        cells: list[Cell] = []
        for number in range(plan.rounds):
            if time.perf_counter() - began > plan.budget:
                say(f"stopped before round {number + 1}: the time is used up")
                break
            say(f"round {number + 1} of {plan.rounds}")
            for concurrency in plan.concurrency:
                for run in _in_turn([run for run, _ in alive], number):
                    cells.append(await _cell(run, concurrency, number, plan.seconds))
        done = [_last_standing(run, standing) for run, standing in alive]
    return Findings(tuple(done + failed), tuple(cells))


async def first_call(run: Running) -> float:
    """Seconds from the start of the process to its first right answer. Raises `NotStarted`."""
    said = "nothing"
    limit = run.candidate.start_limit
    while time.perf_counter() - run.server.started < limit:
        if not run.server.alive:
            raise NotStarted(f"it ended at start: {run.server.last_words()}")
        lane = Lane(run.door)
        try:
            await lane.open()
            said = await lane.call()
        except (OSError, TimeoutError) as exc:
            said = str(exc)
        finally:
            lane.close()
        if said is None:
            return time.perf_counter() - run.server.started
        await asyncio.sleep(0.01)
    raise NotStarted(f"no right answer within {limit:g} s; the last was: {said}")


async def _first_standing(run: Running) -> Standing:
    seconds = await first_call(run)
    return Standing(run.candidate, start_seconds=seconds, idle_rss=run.server.rss_bytes())


def _last_standing(run: Running, first: Standing) -> Standing:
    return Standing(run.candidate, first.start_seconds, first.idle_rss, run.server.rss_bytes())


async def _warm_up(run: Running) -> None:
    lanes = await open_lanes([run.door] * 16)
    await drive(lanes, seconds=2.0, limit=_WARM_UP_CALLS)
    close_lanes(lanes)


async def _cell(run: Running, concurrency: int, number: int, seconds: float) -> Cell:
    try:
        lanes = await open_lanes([run.door] * concurrency)
    except (OSError, TimeoutError) as exc:
        return _as_cell(run, concurrency, number, 0.0, _refused(str(exc)))
    await quiet(run.server)
    before = run.server.cpu_seconds()
    tally = await drive(lanes, seconds=seconds)
    # Work put off until after the answer, such as an audit commit, belongs to the calls that caused it.
    await quiet(run.server)
    cpu = run.server.cpu_seconds() - before
    close_lanes(lanes)
    return _as_cell(run, concurrency, number, cpu, tally)


def _refused(complaint: str) -> Tally:
    tally = Tally(0.0, 0)
    tally.blame(complaint)
    return tally


def _as_cell(run: Running, concurrency: int, number: int, cpu: float, tally: Tally) -> Cell:
    calls = max(tally.calls, 1)
    return Cell(
        candidate=run.candidate.name,
        concurrency=concurrency,
        round=number,
        calls=tally.calls,
        seconds=tally.seconds,
        cpu_us=cpu / calls * 1e6,
        driver_us=tally.driver_cpu / calls * 1e6,
        p50_us=tally.histogram.percentile(0.50) / 1e3,
        p99_us=tally.histogram.percentile(0.99) / 1e3,
        errors=tally.errors,
        complaint=tally.complaint,
    )


def _in_turn(runs: list[Running], number: int) -> list[Running]:
    """Each round begins with another candidate, so that none always follows the same one."""
    first = number % max(len(runs), 1)
    return runs[first:] + runs[:first]


async def quiet(server: Server) -> None:
    """Wait until the server has used no CPU for 60 ms, a second at most."""
    last, since = server.cpu_seconds(), time.perf_counter()
    end = since + 1.0
    while (now := time.perf_counter()) < end and now - since < 0.06:
        await asyncio.sleep(0.02)
        if (used := server.cpu_seconds()) != last:
            last, since = used, time.perf_counter()
