from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import Fault, Kind
from gateway.state.migrations import migrate
from gateway.state.sqlite import open_engine, prepare_file


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncGenerator[AsyncEngine, None]:
    prepare_file(tmp_path / "a.db")
    engine = open_engine(tmp_path / "a.db", "write")
    yield engine
    await engine.dispose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_first.sql").write_text("CREATE TABLE a (x TEXT);\nINSERT INTO a VALUES ('one;two'); -- done;\n")
    return folder


async def run(engine: AsyncEngine, folder: Path) -> None:
    async with engine.connect() as connection:
        await migrate(connection, folder)


async def column(engine: AsyncEngine, sql: str) -> list[object]:
    async with engine.begin() as connection:
        return [value for (value,) in await connection.execute(text(sql))]


async def test_each_migration_is_applied_once_in_order(engine: AsyncEngine, folder: Path) -> None:
    (folder / "0002_second.sql").write_text("INSERT INTO a VALUES ('three')")
    await run(engine, folder)
    await run(engine, folder)
    assert await column(engine, "SELECT x FROM a ORDER BY rowid") == ["one;two", "three"]
    assert await column(engine, "SELECT name FROM migrations ORDER BY number") == ["first", "second"]


async def test_new_migration_is_applied_to_an_existing_database(engine: AsyncEngine, folder: Path) -> None:
    await run(engine, folder)
    (folder / "0007_later.sql").write_text("INSERT INTO a VALUES ('later');")
    await run(engine, folder)
    assert await column(engine, "SELECT x FROM a ORDER BY rowid") == ["one;two", "later"]


async def test_trigger_is_run_as_one_statement(engine: AsyncEngine, folder: Path) -> None:
    (folder / "0002_trigger.sql").write_text(
        "CREATE TABLE b (x TEXT);\n"
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN INSERT INTO b VALUES (new.x); DELETE FROM a; END;\n"
        "INSERT INTO a VALUES ('moved');"
    )
    await run(engine, folder)
    assert await column(engine, "SELECT x FROM b") == ["moved"]


async def test_failed_migration_is_rolled_back(engine: AsyncEngine, folder: Path) -> None:
    (folder / "0002_broken.sql").write_text("CREATE TABLE b (x TEXT); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(Fault, match="0002_broken failed"):
        await run(engine, folder)
    assert await column(engine, "SELECT name FROM sqlite_master WHERE name IN ('a', 'b')") == ["a"]
    assert await column(engine, "SELECT number FROM migrations") == [1]


async def test_changed_migration_file_is_rejected(engine: AsyncEngine, folder: Path) -> None:
    await run(engine, folder)
    (folder / "0001_first.sql").write_text("CREATE TABLE other (x TEXT);")
    with pytest.raises(Fault, match="0001_first was applied but its file has changed") as caught:
        await run(engine, folder)
    assert caught.value.kind is Kind.ILLEGAL_STATE


async def test_missing_migration_file_is_rejected(engine: AsyncEngine, folder: Path) -> None:
    (folder / "0002_second.sql").write_text("CREATE TABLE b (x TEXT);")
    await run(engine, folder)
    (folder / "0002_second.sql").unlink()
    with pytest.raises(Fault, match="0002_second was applied but its file is missing"):
        await run(engine, folder)


async def test_new_migration_numbered_below_an_applied_one_is_rejected(engine: AsyncEngine, folder: Path) -> None:
    (folder / "0003_third.sql").write_text("CREATE TABLE b (x TEXT);")
    await run(engine, folder)
    (folder / "0002_second.sql").write_text("CREATE TABLE c (x TEXT);")
    with pytest.raises(Fault, match="0002_second comes before"):
        await run(engine, folder)


async def test_engine_specific_files_are_applied_on_their_engine_only(engine: AsyncEngine, folder: Path) -> None:
    (folder / "0002_index.sqlite.sql").write_text("INSERT INTO a VALUES ('ours');")
    (folder / "0002_index.postgres.sql").write_text("this is not for SQLite;")
    (folder / "0003_only.postgres.sql").write_text("nor is this;")
    await run(engine, folder)
    await run(engine, folder)
    assert await column(engine, "SELECT x FROM a ORDER BY rowid") == ["one;two", "ours"]
    assert await column(engine, "SELECT number FROM migrations ORDER BY number") == [1, 2]


@pytest.mark.parametrize("twin", ["0001_first.sqlite.sql", "0001_other.postgres.sql"])
async def test_two_migrations_with_one_number_are_rejected(engine: AsyncEngine, folder: Path, twin: str) -> None:
    (folder / twin).write_text("SELECT 1;")
    with pytest.raises(Fault, match="has the number of 0001_first"):
        await run(engine, folder)


@pytest.mark.parametrize(("name", "message"), [("1_a.sql", "not named"), ("0001_twin.sql", "has the number of")])
async def test_file_with_invalid_or_duplicate_number_is_rejected(
    engine: AsyncEngine, folder: Path, name: str, message: str
) -> None:
    (folder / name).write_text("SELECT 1;")
    with pytest.raises(Fault, match=message):
        await run(engine, folder)
