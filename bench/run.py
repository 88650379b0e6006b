"""Runs the benchmark: starts and warms up all candidates, then measures them in turn so that noise affects all."""

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.candidates import Candidate, RunningCandidate, StartError, start_candidate
from bench.driver import ClientConnection, Tally, close_connections, drive, open_connections
from bench.process import Cores, Server

_WARM_UP_CALLS = 3000


@dataclass(frozen=True, slots=True)
class Plan:
    """The extent of a run. No round begins after `budget` seconds."""

    concurrency: tuple[int, ...] = (1, 16, 64, 256)
    rounds: int = 5
    seconds: float = 1.5
    budget: float = 180.0


QUICK = Plan(rounds=2, seconds=0.6, budget=40.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """One candidate at one concurrency in one round. `calls` is 0 when its connections failed."""

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
class CandidateResult:
    """Measurements taken once per candidate. `failure` is the reason if it could not be measured."""

    candidate: Candidate
    start_seconds: float = 0.0
    idle_rss: int = 0
    final_rss: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class RunResults:
    candidates: tuple[CandidateResult, ...]
    cells: tuple[Cell, ...]


async def measure(
    candidates: Sequence[Candidate], plan: Plan, cores: Cores, folder: Path, report: Callable[[str], None]
) -> RunResults:
    with ExitStack() as stack:
        started: list[tuple[RunningCandidate, CandidateResult]] = []
        failed: list[CandidateResult] = []
        for candidate in candidates:
            report(f"starting {candidate.name}")
            try:
                run = stack.enter_context(start_candidate(candidate, folder / candidate.name, cores))
                started.append((run, await _measure_start(run)))
            except StartError as exc:
                failed.append(CandidateResult(candidate, failure=str(exc)))
        for run, _ in started:
            await _warm_up(run)
        gc.collect()
        gc.freeze()
        began = time.perf_counter()  # excludes the start of the candidates, which may take minutes
        cells: list[Cell] = []
        for number in range(plan.rounds):
            if time.perf_counter() - began > plan.budget:
                report(f"stopped before round {number + 1}: time budget exhausted")
                break
            report(f"round {number + 1} of {plan.rounds}")
            for concurrency in plan.concurrency:
                for run in _rotate([run for run, _ in started], number):
                    cells.append(await _cell(run, concurrency, number, plan.seconds))
        done = [_add_final_memory(run, result) for run, result in started]
    return RunResults(tuple(done + failed), tuple(cells))


async def wait_for_first_call(run: RunningCandidate) -> float:
    """Return the seconds from process start to the first correct response. Raises `StartError`."""
    last_error = "nothing"
    limit = run.candidate.start_limit
    while time.perf_counter() - run.server.started < limit:
        if not run.server.is_alive:
            raise StartError(f"the process exited at start: {run.server.last_log_line()}")
        connection = ClientConnection(run.endpoint)
        try:
            await connection.open()
            last_error = await connection.call()
        except (OSError, TimeoutError) as exc:
            last_error = str(exc)
        finally:
            connection.close()
        if last_error is None:
            return time.perf_counter() - run.server.started
        await asyncio.sleep(0.01)
    raise StartError(f"no correct response within {limit:g} s; last error: {last_error}")


async def _measure_start(run: RunningCandidate) -> CandidateResult:
    seconds = await wait_for_first_call(run)
    return CandidateResult(run.candidate, start_seconds=seconds, idle_rss=run.server.rss_bytes())


def _add_final_memory(run: RunningCandidate, first: CandidateResult) -> CandidateResult:
    return CandidateResult(run.candidate, first.start_seconds, first.idle_rss, run.server.rss_bytes())


async def _warm_up(run: RunningCandidate) -> None:
    connections = await open_connections([run.endpoint] * 16)
    await drive(connections, seconds=2.0, limit=_WARM_UP_CALLS)
    close_connections(connections)


async def _cell(run: RunningCandidate, concurrency: int, number: int, seconds: float) -> Cell:
    try:
        connections = await open_connections([run.endpoint] * concurrency)
    except (OSError, TimeoutError) as exc:
        return _to_cell(run, concurrency, number, 0.0, _failed_tally(str(exc)))
    await wait_until_idle(run.server)
    before = run.server.cpu_seconds()
    tally = await drive(connections, seconds=seconds)
    # Work deferred until after the response, such as an audit commit, counts towards its call.
    await wait_until_idle(run.server)
    cpu = run.server.cpu_seconds() - before
    close_connections(connections)
    return _to_cell(run, concurrency, number, cpu, tally)


def _failed_tally(complaint: str) -> Tally:
    tally = Tally(0.0, 0)
    tally.add_error(complaint)
    return tally


def _to_cell(run: RunningCandidate, concurrency: int, number: int, cpu: float, tally: Tally) -> Cell:
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


def _rotate(runs: list[RunningCandidate], number: int) -> list[RunningCandidate]:
    """Rotate the order in each round, so that no candidate always follows the same one."""
    first = number % max(len(runs), 1)
    return runs[first:] + runs[:first]


async def wait_until_idle(server: Server) -> None:
    """Wait until the server has used no CPU for 60 ms, a second at most."""
    last, since = server.cpu_seconds(), time.perf_counter()
    end = since + 1.0
    while (now := time.perf_counter()) < end and now - since < 0.06:
        await asyncio.sleep(0.02)
        if (used := server.cpu_seconds()) != last:
            last, since = used, time.perf_counter()
