"""The driver of all SQLite engines: one thread round trip per statement, and no open statements."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.state.sqlite import open_engine, prepare_file, transaction
from gateway.state.sqlite_driver import SqliteConnection, connect


class CountingConnection(SqliteConnection):
    """Counts the round trips to its thread."""

    round_trips = 0

    async def _execute(self, *args: Any, **kwargs: Any) -> Any:
        CountingConnection.round_trips += 1
        return await super()._execute(*args, **kwargs)


async def test_each_statement_and_commit_takes_one_thread_round_trip(tmp_path: Path) -> None:
    creator = {"async_creator_fn": lambda database, **options: CountingConnection(database, options)}
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/a.db", connect_args=creator)
    async with engine.begin() as opened:
        await opened.execute(text("CREATE TABLE words (word TEXT)"))
    CountingConnection.round_trips = 0
    async with engine.begin() as opened:
        await opened.execute(text("INSERT INTO words VALUES (:word)"), [{"word": "a"}, {"word": "b"}])
        found = await opened.execute(text("SELECT word FROM words ORDER BY word"))
        assert [row.word for row in found] == ["a", "b"]
    assert CountingConnection.round_trips == 3
    await engine.dispose()


async def test_update_reports_its_row_count_and_returning_values(tmp_path: Path) -> None:
    prepare_file(tmp_path / "a.db")
    engine = open_engine(tmp_path / "a.db", "write")
    async with transaction(engine) as opened:
        await opened.execute(text("CREATE TABLE words (word TEXT PRIMARY KEY)"))
        await opened.execute(text("INSERT INTO words VALUES ('a'), ('b')"))
        updated = await opened.execute(text("UPDATE words SET word = word || '!'"))
        assert updated.rowcount == 2
        returned = await opened.execute(text("UPDATE words SET word = 'c' WHERE word = 'a!' RETURNING word"))
        assert returned.scalar_one() == "c"
    await engine.dispose()


async def test_failed_transaction_is_rolled_back(tmp_path: Path) -> None:
    prepare_file(tmp_path / "a.db")
    engine = open_engine(tmp_path / "a.db", "write")
    async with transaction(engine) as opened:
        await opened.execute(text("CREATE TABLE words (word TEXT PRIMARY KEY)"))

    async def twice() -> None:
        async with transaction(engine) as opened:
            await opened.execute(text("INSERT INTO words VALUES ('a')"))
            await opened.execute(text("INSERT INTO words VALUES ('a')"))

    with pytest.raises(IntegrityError):
        await twice()
    async with transaction(engine) as opened:
        assert (await opened.execute(text("SELECT count(*) FROM words"))).scalar_one() == 0
    await engine.dispose()


async def test_closed_connection_cannot_be_used(tmp_path: Path) -> None:
    opened = connect(str(tmp_path / "a.db"))
    await opened
    await opened.close()
    with pytest.raises((ValueError, sqlite3.ProgrammingError)):
        await opened.cursor().execute("SELECT 1")


async def test_cancelled_begin_is_rolled_back(tmp_path: Path) -> None:
    opened = connect(str(tmp_path / "a.db"), timeout=30, isolation_level=None)
    await opened
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begin = asyncio.create_task(opened.cursor().execute("BEGIN IMMEDIATE"))
        await asyncio.sleep(0)
        begin.cancel()
        rolled_back = asyncio.create_task(opened.rollback())
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
    await rolled_back
    await opened.cursor().execute("SELECT 1")
    assert not opened.in_transaction
    await opened.close()
