import asyncio
import stat
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from gateway.contract import Store
from gateway.errors import Fault, Kind
from gateway.state.postgres_stores import PostgresStores
from gateway.state.stores import SqliteStores

MIGRATION = "CREATE TABLE notes (body TEXT PRIMARY KEY, CHECK (body <> ''));"


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_notes.sql").write_text(MIGRATION)
    return folder


AnyStores = SqliteStores | PostgresStores


async def open_test_stores(folder: Path, url: str | None) -> AnyStores:
    return SqliteStores(folder / "files", open_files=2) if url is None else await PostgresStores.open(url, 3)


@pytest.fixture
async def stores(tmp_path: Path, database_url: str | None) -> AsyncGenerator[AnyStores, None]:
    stores = await open_test_stores(tmp_path, database_url)
    yield stores
    await stores.close()


@pytest.fixture
async def files(tmp_path: Path) -> AsyncGenerator[SqliteStores, None]:
    """SQLite only."""
    stores = SqliteStores(tmp_path / "files", open_files=2)
    yield stores
    await stores.close()


async def add(store: Store, body: str) -> None:
    async with store.transaction() as connection:
        await connection.execute(text("INSERT INTO notes (body) VALUES (:body)"), {"body": body})


async def bodies(store: Store) -> list[str]:
    async with store.transaction() as connection:
        return [body for (body,) in await connection.execute(text("SELECT body FROM notes ORDER BY body"))]


async def test_tenant_sees_its_own_rows_only(stores: AnyStores, migrations: Path) -> None:
    ours, theirs = stores.store("ours", "notes", migrations), stores.store("theirs", "notes", migrations)
    await add(ours, "secret")
    assert await bodies(theirs) == []
    assert await bodies(ours) == ["secret"]


async def test_unique_keys_are_unique_per_tenant(stores: AnyStores, migrations: Path) -> None:
    ours, theirs = stores.store("ours", "notes", migrations), stores.store("theirs", "notes", migrations)
    await add(ours, "same")
    await add(theirs, "same")
    with pytest.raises(IntegrityError):
        await add(ours, "same")
    assert await bodies(ours) == await bodies(theirs) == ["same"]


async def test_store_file_is_private_to_its_owner(files: SqliteStores, migrations: Path, tmp_path: Path) -> None:
    await add(files.store("ours", "notes", migrations), "secret")
    assert stat.S_IMODE((tmp_path / "files/ours/notes.db").stat().st_mode) == 0o600


async def test_no_file_is_created_before_the_first_transaction(
    files: SqliteStores, migrations: Path, tmp_path: Path
) -> None:
    files.store("ours", "notes", migrations)
    assert not (tmp_path / "files").exists()


async def test_tenants_of_a_store_are_listed_by_its_name(stores: AnyStores, migrations: Path) -> None:
    assert await stores.tenants("notes") == ()
    for tenant in ("theirs", "ours"):
        await add(stores.store(tenant, "notes", migrations), "x")
    await add(stores.store("third", "other", migrations), "x")
    assert await stores.tenants("notes") == ("ours", "theirs")


async def test_backends_that_share_a_store_share_its_rows(stores: AnyStores, migrations: Path) -> None:
    async with stores.store("ours", "gox", None).transaction():
        pass
    await add(stores.store("ours", "gox", migrations), "shared")
    assert await bodies(stores.store("ours", "gox", None)) == ["shared"]


async def test_transaction_is_rolled_back_when_its_block_raises(stores: AnyStores, migrations: Path) -> None:
    store = stores.store("ours", "notes", migrations)

    async def fail_halfway() -> None:
        async with store.transaction() as connection:
            await connection.execute(text("INSERT INTO notes (body) VALUES ('half')"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_halfway()
    assert await bodies(store) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../up",
        "a/b",
        "/etc",
        "a\\b",
        "-a",
        "A",
        "a.b",
        "a\n",
        "a\0",
        "ä",
        "a" * 65,
        "%2e%2e",
        "a b",
        "١",
    ],
)
async def test_name_that_could_leave_the_folder_is_rejected(stores: AnyStores, tmp_path: Path, name: str) -> None:
    for tenant, store in ((name, "notes"), ("ours", name)):
        with pytest.raises(Fault) as caught:
            stores.store(tenant, store, None)
        assert caught.value.kind is Kind.INVALID_INPUT


async def test_concurrent_writers_of_a_store_lose_no_updates(
    stores: AnyStores, migrations: Path, tmp_path: Path, database_url: str | None
) -> None:
    others = await open_test_stores(tmp_path, database_url)
    await add(stores.store("ours", "notes", migrations), "0")

    async def increment(store: Store) -> None:
        async with store.transaction() as connection:
            body = (await connection.execute(text("SELECT body FROM notes"))).scalar_one()
            await connection.execute(text("UPDATE notes SET body = :body"), {"body": str(int(body) + 1)})

    pair = [each.store("ours", "notes", migrations) for each in (stores, others)]
    await asyncio.gather(*(increment(store) for store in pair * 20))
    assert await bodies(pair[0]) == ["40"]
    await others.close()


async def test_number_of_open_files_is_bounded_and_closed_files_reopen(files: SqliteStores, migrations: Path) -> None:
    tenants = [files.store(f"t{number}", "notes", migrations) for number in range(12)]
    await add(tenants[0], "kept")
    before = threading.active_count()
    await asyncio.gather(*(add(store, "x") for store in tenants))
    for store in tenants:
        assert "x" in await bodies(store)
    assert await bodies(tenants[0]) == ["kept", "x"]
    while threading.active_count() > before + 6:  # two open files, and the event loop's worker threads
        await asyncio.sleep(0.01)


async def test_folder_that_cannot_be_created_is_a_fault_without_its_path(files: SqliteStores, tmp_path: Path) -> None:
    (tmp_path / "files").touch()
    with pytest.raises(Fault) as caught:
        async with files.store("ours", "notes", None).transaction():
            pass
    assert caught.value.kind is Kind.UNAVAILABLE
    assert str(tmp_path) not in caught.value.message


async def test_store_works_again_after_its_folder_is_repaired(
    files: SqliteStores, migrations: Path, tmp_path: Path
) -> None:
    (tmp_path / "files").touch()
    store = files.store("ours", "notes", migrations)
    with pytest.raises(Fault):
        await add(store, "lost")
    (tmp_path / "files").unlink()
    await add(store, "kept")
    assert await bodies(store) == ["kept"]
