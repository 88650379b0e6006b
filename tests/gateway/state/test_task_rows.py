"""Rows of tasks, on both engines: quotas, and writes of a worker that lost its lease."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.errors import Fault, Kind
from gateway.state.database import Database
from gateway.state.task_rows import TaskQuota, TaskRow, TaskRows

QUOTA = TaskQuota(2, 3, 1000)


def _row(id: str, principal: str = "acme/user:alice", **more: object) -> TaskRow:
    now = time.time()
    row = TaskRow(
        id=id,
        public_id=f"v1.{id}",
        tenant=principal.partition("/")[0],
        principal=principal,
        kind="managed",
        namespace="far",
        tool="far.work",
        state="working",
        created_at=now,
        updated_at=now,
        deadline_at=now + 60,
        ttl=60.0,
        expires_at=now + 60,
        request="sealed",
        worker="w1",
        attempt=1,
        lease_until=now + 10,
        bytes=100,
    )
    return replace(row, **more)  # type: ignore[arg-type]


@pytest.fixture
async def rows(tmp_path: Path, database_url: str | None) -> AsyncIterator[TaskRows]:
    database = await Database.open(tmp_path, database_url)
    yield TaskRows(database)
    await database.close()


async def test_row_is_read_as_it_was_written(rows: TaskRows) -> None:
    row = _row("a", repeatable=True, ttl=None)
    await rows.insert(row, QUOTA)
    assert await rows.find("a") == row


async def test_quota_counts_the_tasks_that_have_not_ended(rows: TaskRows) -> None:
    await rows.insert(_row("a"), QUOTA)
    await rows.insert(_row("b"), QUOTA)
    with pytest.raises(Fault) as raised:
        await rows.insert(_row("c"), QUOTA)
    assert raised.value.kind is Kind.RATE_LIMITED
    await rows.insert(_row("d", "acme/user:bob"), QUOTA)
    with pytest.raises(Fault):
        await rows.insert(_row("e", "acme/user:carol"), QUOTA)
    await rows.insert(_row("f", "other/user:alice"), QUOTA)
    assert await rows.update("a", 1, state="completed")
    await rows.insert(_row("c"), QUOTA)


async def test_bytes_of_ended_tasks_count(rows: TaskRows) -> None:
    await rows.insert(_row("a", state="completed", bytes=950), QUOTA)
    with pytest.raises(Fault):
        await rows.insert(_row("b"), QUOTA)
    assert not await rows.has_space("acme", 51, QUOTA)
    assert await rows.has_space("acme", 50, QUOTA)


async def test_worker_that_lost_its_lease_cannot_change_the_task(rows: TaskRows) -> None:
    await rows.insert(_row("a", lease_until=0.0), QUOTA)
    (seen,) = await rows.abandoned()
    claimed = await rows.claim(seen, "w2", time.time() + 10)
    assert claimed is not None
    assert (claimed.worker, claimed.attempt) == ("w2", 2)
    assert await rows.claim(seen, "w3", time.time() + 10) is None
    assert not await rows.update("a", 1, sent=1)
    assert await rows.update("a", 2, sent=1)


async def test_task_that_has_ended_does_not_change_any_more(rows: TaskRows) -> None:
    await rows.insert(_row("a"), QUOTA)
    assert await rows.update("a", 1, state="cancelled")
    assert not await rows.update("a", 1, state="completed")
    assert not await rows.cancel("a")


async def test_expired_task_is_not_found(rows: TaskRows) -> None:
    await rows.insert(_row("a", expires_at=time.time() - 1), QUOTA)
    assert await rows.find("a") is None
    await rows.delete_expired()
    assert list(await rows.usage()) == []


async def test_answers_to_a_task_that_changed_are_not_stored(rows: TaskRows) -> None:
    await rows.insert(_row("a", state="input_required", input="two"), QUOTA)
    assert await rows.add_answers("a", "first", "one", "input_required", "")
    assert not await rows.add_answers("a", "second", "one", "input_required", "")
    assert await rows.add_answers("a", "both", "", "working", "first")
    (row,) = await rows.requests_for("w1")
    assert row.answers == "both"
