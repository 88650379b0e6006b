"""Sections are drafted side by side: bounded, in the same order of results, safe when one fails or all are stopped."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.launch.events import News, Span
from backends.launch.job import Job
from backends.launch.options import Options
from backends.launch.pipeline import STEPS
from backends.launch.run import Run, at_work
from backends.launch.states import SECTIONS, State
from backends.launch.worker_process import Workshop
from gateway.contract import Caller, CurrentCall
from gateway.errors import Fault, Kind
from gateway.telemetry.piece import Done
from gateway.upstream.home import ModuleWorkSpan
from tests.backends.launch.worker_fixtures import worked

DRAFTING = STEPS[State.DRAFTING]
PATH = (State.CLONED_INPUTS, State.INGESTED, State.FACTS_READY, State.PLAN_READY, State.DRAFTING)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with everything that its writers need."""
    return worked(tmp_path_factory.mktemp("planned")).folder


@pytest.fixture
def drafting(planned: Path, tmp_path: Path) -> Run:
    """A run that is about to draft its five sections."""
    folder = tmp_path / "run"
    for name in ("drafts", "logs"):
        (folder / name).mkdir(parents=True)
    for name in ("artifacts", "run_config.yaml"):
        os.symlink(planned / name, folder / name)
    run = Run("r_2026-01-01T00-00-00Z_00000000", folder)
    created = {"product_slug": "3d", "required_sections": list(SECTIONS)}
    run.record([News("RUN_CREATED", created, Span())])
    for state in PATH:
        run.move(state, Span())
    return run


class Silent(list[str]):
    async def __call__(self, message: str) -> None:
        self.append(message)


def job(run: Run, workshop: Any, progress: Silent | None = None, done: list[Done] | None = None) -> Job:
    here = CurrentCall(Caller("default", "alice"), "cid", 0.0, {})

    def spans(name: str, about: Mapping[str, Any]) -> ModuleWorkSpan:
        return ModuleWorkSpan("launch", name, here, about, lambda each: done.append(each) if done is not None else None)

    return Job(run, Span(), workshop, progress if progress is not None else Silent(), spans)


def told(run: Run, kind: str) -> list[str]:
    """The sections of that news, in the order of the journal."""
    return [event["payload"]["work_item_id"].rpartition(":")[2] for event in run.events() if event["type"] == kind]


def statuses(run: Run) -> dict[str, str]:
    return {item["scope_key"]: item["status"] for item in run.snapshot()["work_items"]}


class Hands:
    """A workshop whose work ends when the test says so."""

    def __init__(self, hands: int) -> None:
        self.hands = hands
        self.at_work: dict[str, asyncio.Future[None]] = {}
        self.changed = asyncio.Event()
        self.most = 0

    async def do(self, worker: str, scope: str, given: Any = None, *, beside: bool = False) -> Any:
        assert (worker, beside) == ("draft", True)
        self.at_work[scope] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.at_work))
        self.changed.set()
        try:
            await self.at_work[scope]
        finally:
            del self.at_work[scope]
        return {"written": [], "news": [], "result": {}}

    async def until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 30)


async def test_as_many_sections_are_under_way_as_there_are_hands_and_no_more(drafting: Run) -> None:
    hands, progress = Hands(2), Silent()
    taking = asyncio.create_task(job(drafting, hands, progress).take(DRAFTING))
    for _ in SECTIONS:
        await hands.until(lambda: len(hands.at_work) == min(2, len(SECTIONS) - len(progress)))
        before = len(progress)
        # The last to begin is the first to end.
        hands.at_work[list(hands.at_work)[-1]].set_result(None)
        while len(progress) == before:
            await asyncio.sleep(0)
    await taking
    assert hands.most == 2
    assert told(drafting, "WORK_ITEM_QUEUED") == list(SECTIONS)
    assert told(drafting, "WORK_ITEM_FINISHED") != list(SECTIONS)
    assert [item["scope_key"] for item in drafting.snapshot()["work_items"]] == list(SECTIONS)
    assert set(progress) == {*(f"DRAFTING {name}" for name in SECTIONS), "DRAFT_READY"}
    assert progress[-1] == "DRAFT_READY"
    assert drafting.state() is State.DRAFT_READY


async def test_when_sections_fail_the_first_in_order_is_told_and_none_is_begun_after(drafting: Run) -> None:
    hands, done = Hands(3), list[Done]()
    taking = asyncio.create_task(job(drafting, hands, done=done).take(DRAFTING))
    await hands.until(lambda: len(hands.at_work) == 3)
    for name in ("reference", "docs"):  # the later section fails first
        hands.at_work[name].set_exception(Fault(Kind.UNSUPPORTED, name, code="TOOLCHAIN_MISSING"))
    hands.at_work["products"].set_result(None)
    with pytest.raises(Fault, match="docs"):
        await taking
    assert statuses(drafting) == {
        **dict.fromkeys(("docs", "reference"), "failed"),
        "products": "finished",
        **dict.fromkeys(("kb", "blog"), "queued"),
    }
    assert {each.about["scope"]: type(each.exc) for each in done} == {
        "docs": Fault, "reference": Fault, "products": type(None),
    }  # fmt: skip
    assert drafting.state() is State.DRAFTING
    # Taken up again, only what was not finished is done.
    again = Hands(5)
    taking = asyncio.create_task(job(drafting, again).take(DRAFTING))
    await again.until(lambda: len(again.at_work) == 4)
    assert set(again.at_work) == {"docs", "reference", "kb", "blog"}
    for work in again.at_work.values():
        work.set_result(None)
    await taking
    assert drafting.state() is State.DRAFT_READY


def _drafts(run: Run) -> dict[str, bytes]:
    files = (path for path in (run.folder / "drafts").rglob("*") if path.is_file())
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in files}


async def drafted(run: Run, writers: int) -> None:
    workshop = Workshop(run, Options(writers=writers))
    try:
        await job(run, workshop).take(DRAFTING)
    finally:
        await workshop.close()


async def test_side_by_side_leaves_what_one_after_another_leaves(drafting: Run, planned: Path) -> None:
    await drafted(drafting, 4)
    assert _drafts(drafting) == _drafts(Run("r_2026-01-01T00-00-00Z_00000000", planned))
    index = drafting.snapshot()["artifacts_index"]
    assert {name for name in index if name.startswith("drafts/")} == set(_drafts(drafting))
    assert {name.split("/")[1] for name in index} == set(SECTIONS)
    spans = [event["span_id"] for event in drafting.events() if event["type"] == "WORK_ITEM_STARTED"]
    assert len(set(spans)) == len(SECTIONS)


# ---- real writers that cannot go on: what they read is a pipe that nobody writes to -------------------------------


class Stuck:
    def __init__(self, run: Run, planned: Path) -> None:
        (run.folder / "artifacts").unlink()
        (run.folder / "artifacts").mkdir()
        for path in (planned / "artifacts").iterdir():
            os.symlink(path, run.folder / "artifacts" / path.name)
        (run.folder / "artifacts" / "page_plan.json").unlink()
        os.mkfifo(run.folder / "artifacts" / "page_plan.json")
        self.run = run
        self.workshop = Workshop(run, Options(writers=3))
        self.taking = asyncio.create_task(job(run, self.workshop).take(DRAFTING))

    def processes(self) -> list[int]:
        """Those at work in the run's folder."""
        found: list[int] = []
        for place in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if place.readlink() == self.run.folder:
                    found.append(int(place.parent.name))
            except OSError:
                continue
        return found

    async def until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not fact():
                await asyncio.sleep(0.02)

    async def under_way(self) -> list[int]:
        """The child and its three hands."""
        await self.until(lambda: len(told(self.run, "WORK_ITEM_STARTED")) == 3 and len(self.processes()) == 4)
        return self.processes()


@pytest.fixture
def stuck(drafting: Run, planned: Path) -> Callable[[], Stuck]:
    return lambda: Stuck(drafting, planned)


async def test_a_cancel_ends_every_section_that_is_under_way(stuck: Any) -> None:
    at = stuck()
    await at.under_way()
    at.run.cancel(Span())
    at.workshop.kill()
    with pytest.raises(Fault) as failed:
        await at.taking
    assert failed.value.code == "CANCELLED"
    await at.workshop.close()
    await at.until(lambda: not at.processes())
    last = at.run.events()[-1]
    assert (last["type"], last["payload"]["new_state"]) == ("RUN_STATE_CHANGED", "CANCELLED")
    assert _drafts(at.run) == {}


async def test_a_hand_that_is_killed_ends_the_work_so_that_it_can_be_taken_up_again(stuck: Any) -> None:
    at = stuck()
    processes = await at.under_way()
    os.kill(next(pid for pid in processes if pid != at.workshop._process.pid), signal.SIGKILL)
    with pytest.raises(Fault) as failed:
        await at.taking
    assert failed.value.retryable
    assert failed.value.details == {"cause_class": "WorkerDied"}
    await at.until(lambda: not at.processes())
    assert sorted(statuses(at.run).values()) == ["failed", "failed", "failed", "queued", "queued"]
    await at.workshop.close()


async def test_no_hand_outlives_its_child(stuck: Any) -> None:
    at = stuck()
    await at.under_way()
    os.kill(at.workshop._process.pid, signal.SIGKILL)
    with pytest.raises(Fault, match="ended before"):
        await at.taking
    await at.until(lambda: not at.processes())
    await at.workshop.close()


# ---- the budget ---------------------------------------------------------------------------------------------------


def _item(name: str, kind: str, second: int) -> Any:
    return {"type": f"WORK_ITEM_{kind}", "ts": f"2026-01-01T00:00:{second:02}+00:00", "payload": {"work_item_id": name}}


def test_time_that_two_sections_share_is_counted_once() -> None:
    events = [
        _item("a", "STARTED", 0),
        _item("b", "STARTED", 2),
        _item("a", "FINISHED", 5),
        _item("b", "FAILED", 7),
        _item("never ended", "STARTED", 20),
        _item("c", "STARTED", 30),
        _item("c", "FINISHED", 33),
    ]
    assert at_work(events) == 10
