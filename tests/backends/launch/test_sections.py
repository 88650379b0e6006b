"""Concurrent drafting of sections: limits, order of results, failures and cancellation."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.launch.events import NewEvent, Span
from backends.launch.job import Job
from backends.launch.options import Options
from backends.launch.pipeline import STEPS
from backends.launch.run import Run, work_seconds
from backends.launch.states import SECTIONS, State
from backends.launch.worker_process import WorkerProcess
from gateway.contract import Caller, CurrentCall
from gateway.errors import Fault, Kind
from gateway.telemetry.work_span import FinishedWork
from gateway.upstream.host import ModuleWorkSpan
from tests.backends.launch.worker_fixtures import run_workers

DRAFTING = STEPS[State.DRAFTING]
PATH = (State.CLONED_INPUTS, State.INGESTED, State.FACTS_READY, State.PLAN_READY, State.DRAFTING)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with all inputs of the draft worker."""
    return run_workers(tmp_path_factory.mktemp("planned")).folder


@pytest.fixture
def drafting(planned: Path, tmp_path: Path) -> Run:
    """A run in DRAFTING, before its five sections are drafted."""
    folder = tmp_path / "run"
    for name in ("drafts", "logs"):
        (folder / name).mkdir(parents=True)
    for name in ("artifacts", "run_config.yaml"):
        os.symlink(planned / name, folder / name)
    run = Run("r_2026-01-01T00-00-00Z_00000000", folder)
    created = {"product_slug": "3d", "required_sections": list(SECTIONS)}
    run.record([NewEvent("RUN_CREATED", created, Span())])
    for state in PATH:
        run.move(state, Span())
    return run


class RecordedProgress(list[str]):
    """A progress callback that stores the messages."""

    async def __call__(self, message: str) -> None:
        self.append(message)


def job(
    run: Run, process: Any, progress: RecordedProgress | None = None, done: list[FinishedWork] | None = None
) -> Job:
    current = CurrentCall(Caller("default", "alice"), "cid", 0.0, {})

    def start_span(name: str, attributes: Mapping[str, Any]) -> ModuleWorkSpan:
        return ModuleWorkSpan(
            "launch", name, current, attributes, lambda each: done.append(each) if done is not None else None
        )

    return Job(run, Span(), process, progress if progress is not None else RecordedProgress(), start_span)


def recorded_sections(run: Run, kind: str) -> list[str]:
    """Return the sections of all events of this type, in journal order."""
    return [event["payload"]["work_item_id"].rpartition(":")[2] for event in run.events() if event["type"] == kind]


def statuses(run: Run) -> dict[str, str]:
    return {item["scope_key"]: item["status"] for item in run.snapshot()["work_items"]}


class FakeProcess:
    """A worker process whose items end when the test completes their futures."""

    def __init__(self, pool_size: int) -> None:
        self.pool_size = pool_size
        self.running: dict[str, asyncio.Future[None]] = {}
        self.changed = asyncio.Event()
        self.max_running = 0

    async def run_item(self, worker: str, scope: str, parameters: Any = None, *, parallel: bool = False) -> Any:
        assert (worker, parallel) == ("draft", True)
        self.running[scope] = asyncio.get_running_loop().create_future()
        self.max_running = max(self.max_running, len(self.running))
        self.changed.set()
        try:
            await self.running[scope]
        finally:
            del self.running[scope]
        return {"written": [], "events": [], "result": {}}

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 30)


async def test_number_of_concurrent_sections_equals_the_pool_size(drafting: Run) -> None:
    process, progress = FakeProcess(2), RecordedProgress()
    step_task = asyncio.create_task(job(drafting, process, progress).take_step(DRAFTING))
    for _ in SECTIONS:
        await process.until(lambda: len(process.running) == min(2, len(SECTIONS) - len(progress)))
        before = len(progress)
        # The section that started last ends first.
        process.running[list(process.running)[-1]].set_result(None)
        while len(progress) == before:
            await asyncio.sleep(0)
    await step_task
    assert process.max_running == 2
    assert recorded_sections(drafting, "WORK_ITEM_QUEUED") == list(SECTIONS)
    assert recorded_sections(drafting, "WORK_ITEM_FINISHED") != list(SECTIONS)
    assert [item["scope_key"] for item in drafting.snapshot()["work_items"]] == list(SECTIONS)
    assert set(progress) == {*(f"DRAFTING {name}" for name in SECTIONS), "DRAFT_READY"}
    assert progress[-1] == "DRAFT_READY"
    assert drafting.state() is State.DRAFT_READY


async def test_fault_of_the_first_failed_section_is_raised_and_no_further_section_starts(drafting: Run) -> None:
    process, done = FakeProcess(3), list[FinishedWork]()
    step_task = asyncio.create_task(job(drafting, process, done=done).take_step(DRAFTING))
    await process.until(lambda: len(process.running) == 3)
    for name in ("reference", "docs"):  # the later section fails first
        process.running[name].set_exception(Fault(Kind.UNSUPPORTED, name, code="TOOLCHAIN_MISSING"))
    process.running["products"].set_result(None)
    with pytest.raises(Fault, match="docs"):
        await step_task
    assert statuses(drafting) == {
        **dict.fromkeys(("docs", "reference"), "failed"),
        "products": "finished",
        **dict.fromkeys(("kb", "blog"), "queued"),
    }
    assert {each.attributes["scope"]: type(each.exc) for each in done} == {
        "docs": Fault, "reference": Fault, "products": type(None),
    }  # fmt: skip
    assert drafting.state() is State.DRAFTING
    # A retry runs only the unfinished sections.
    retried = FakeProcess(5)
    step_task = asyncio.create_task(job(drafting, retried).take_step(DRAFTING))
    await retried.until(lambda: len(retried.running) == 4)
    assert set(retried.running) == {"docs", "reference", "kb", "blog"}
    for future in retried.running.values():
        future.set_result(None)
    await step_task
    assert drafting.state() is State.DRAFT_READY


def _drafts(run: Run) -> dict[str, bytes]:
    files = (path for path in (run.folder / "drafts").rglob("*") if path.is_file())
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in files}


async def draft_sections(run: Run, writers: int) -> None:
    process = WorkerProcess(run, Options(writers=writers))
    try:
        await job(run, process).take_step(DRAFTING)
    finally:
        await process.close()


async def test_concurrent_drafting_produces_the_same_drafts_as_sequential_drafting(
    drafting: Run, planned: Path
) -> None:
    await draft_sections(drafting, 4)
    assert _drafts(drafting) == _drafts(Run("r_2026-01-01T00-00-00Z_00000000", planned))
    index = drafting.snapshot()["artifacts_index"]
    assert {name for name in index if name.startswith("drafts/")} == set(_drafts(drafting))
    assert {name.split("/")[1] for name in index} == set(SECTIONS)
    spans = [event["span_id"] for event in drafting.events() if event["type"] == "WORK_ITEM_STARTED"]
    assert len(set(spans)) == len(SECTIONS)


# ---- real draft workers that block, because they read from a pipe without a writer -------------------------------


class BlockedDrafting:
    """A drafting step whose workers block until they are killed."""

    def __init__(self, run: Run, planned: Path) -> None:
        (run.folder / "artifacts").unlink()
        (run.folder / "artifacts").mkdir()
        for path in (planned / "artifacts").iterdir():
            os.symlink(path, run.folder / "artifacts" / path.name)
        (run.folder / "artifacts" / "page_plan.json").unlink()
        os.mkfifo(run.folder / "artifacts" / "page_plan.json")
        self.run = run
        self.process = WorkerProcess(run, Options(writers=3))
        self.step_task = asyncio.create_task(job(run, self.process).take_step(DRAFTING))

    def processes(self) -> list[int]:
        """Return the processes whose working directory is the run's folder."""
        found: list[int] = []
        for link in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if link.readlink() == self.run.folder:
                    found.append(int(link.parent.name))
            except OSError:
                continue
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.02)

    async def wait_until_running(self) -> list[int]:
        """Wait until three sections are running, and return the worker process and its three pool processes."""
        await self.until(
            lambda: len(recorded_sections(self.run, "WORK_ITEM_STARTED")) == 3 and len(self.processes()) == 4
        )
        return self.processes()


@pytest.fixture
def start_blocked(drafting: Run, planned: Path) -> Callable[[], BlockedDrafting]:
    return lambda: BlockedDrafting(drafting, planned)


async def test_cancel_stops_every_running_section(start_blocked: Any) -> None:
    blocked = start_blocked()
    await blocked.wait_until_running()
    blocked.run.cancel(Span())
    blocked.process.kill()
    with pytest.raises(Fault) as failed:
        await blocked.step_task
    assert failed.value.code == "CANCELLED"
    await blocked.process.close()
    await blocked.until(lambda: not blocked.processes())
    last = blocked.run.events()[-1]
    assert (last["type"], last["payload"]["new_state"]) == ("RUN_STATE_CHANGED", "CANCELLED")
    assert _drafts(blocked.run) == {}


async def test_killed_pool_process_fails_the_work_with_a_retryable_fault(start_blocked: Any) -> None:
    blocked = start_blocked()
    processes = await blocked.wait_until_running()
    os.kill(next(pid for pid in processes if pid != blocked.process._process.pid), signal.SIGKILL)
    with pytest.raises(Fault) as failed:
        await blocked.step_task
    assert failed.value.retryable
    assert failed.value.details == {"cause_class": "WorkerDied"}
    await blocked.until(lambda: not blocked.processes())
    assert sorted(statuses(blocked.run).values()) == ["failed", "failed", "failed", "queued", "queued"]
    await blocked.process.close()


async def test_pool_processes_end_with_the_worker_process(start_blocked: Any) -> None:
    blocked = start_blocked()
    await blocked.wait_until_running()
    os.kill(blocked.process._process.pid, signal.SIGKILL)
    with pytest.raises(Fault, match="ended before"):
        await blocked.step_task
    await blocked.until(lambda: not blocked.processes())
    await blocked.process.close()


# ---- the budget ---------------------------------------------------------------------------------------------------


def _item(name: str, kind: str, second: int) -> Any:
    return {"type": f"WORK_ITEM_{kind}", "ts": f"2026-01-01T00:00:{second:02}+00:00", "payload": {"work_item_id": name}}


def test_overlapping_work_time_is_counted_once() -> None:
    events = [
        _item("a", "STARTED", 0),
        _item("b", "STARTED", 2),
        _item("a", "FINISHED", 5),
        _item("b", "FAILED", 7),
        _item("never ended", "STARTED", 20),
        _item("c", "STARTED", 30),
        _item("c", "FINISHED", 33),
    ]
    assert work_seconds(events) == 10
