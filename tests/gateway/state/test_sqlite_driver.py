"""The driver below every SQLite engine: one visit to the thread for each statement, and nothing held open."""

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
from gateway.state.sqlite_driver import SqliteConnection, connection


class Counting(SqliteConnection):
    """Counts the visits to its thread."""

    visits = 0

    async def _execute(self, *given: Any, **more: Any) -> Any:
        Counting.visits += 1
        return await super()._execute(*given, **more)


async def test_each_statement_is_one_visit_and_so_is_the_end_of_a_transaction(tmp_path: Path) -> None:
    creator = {"async_creator_fn": lambda database, **options: Counting(database, options)}
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/a.db", connect_args=creator)
    async with engine.begin() as opened:
        await opened.execute(text("CREATE TABLE words (word TEXT)"))
    Counting.visits = 0
    async with engine.begin() as opened:
        await opened.execute(text("INSERT INTO words VALUES (:word)"), [{"word": "a"}, {"word": "b"}])
        found = await opened.execute(text("SELECT word FROM words ORDER BY word"))
        assert [row.word for row in found] == ["a", "b"]
    assert Counting.visits == 3
    await engine.dispose()


async def test_an_update_counts_its_rows_and_returns_what_it_is_asked_to(tmp_path: Path) -> None:
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


async def test_what_a_failed_transaction_did_is_taken_back(tmp_path: Path) -> None:
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


async def test_a_closed_connection_is_closed_for_good(tmp_path: Path) -> None:
    opened = await connection(str(tmp_path / "a.db"))
    await opened.close()
    with pytest.raises((ValueError, sqlite3.ProgrammingError)):
        await opened.cursor().execute("SELECT 1")


async def test_a_beginning_that_nobody_waits_for_any_more_is_taken_back_too(tmp_path: Path) -> None:
    opened = await connection(str(tmp_path / "a.db"), timeout=30, isolation_level=None)
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        beginning = asyncio.create_task(opened.cursor().execute("BEGIN IMMEDIATE"))
        await asyncio.sleep(0)
        beginning.cancel()
        rolled_back = asyncio.create_task(opened.rollback())
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
    await rolled_back
    await opened.cursor().execute("SELECT 1")
    assert not opened.in_transaction
    await opened.close()
