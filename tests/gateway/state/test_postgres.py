"""PostgreSQL only: row-level security, roles and lost connections."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from gateway.auth.api_keys import ApiKeys
from gateway.errors import Fault, Kind
from gateway.state.database import Database
from gateway.state.postgres import ROLE
from gateway.state.postgres_stores import PostgresStores

NOTES = (
    "CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT NOT NULL UNIQUE); CREATE UNIQUE INDEX b ON notes (body, id);"
)


@pytest.fixture
def database_url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
async def direct(postgres_url: str, database: Database) -> AsyncGenerator[Any, None]:
    """A connection with the gateway's role, without a tenant."""
    connection = await asyncpg.connect(postgres_url, server_settings={"role": ROLE})
    yield connection
    await connection.close()


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    (tmp_path / "0001_notes.sql").write_text(NOTES)
    return tmp_path


@pytest.fixture
async def stores(postgres_url: str) -> AsyncGenerator[PostgresStores, None]:
    stores = await PostgresStores.open(postgres_url, 3)
    yield stores
    await stores.close()


async def add(stores: PostgresStores, tenant: str, migrations: Path) -> None:
    async with stores.store(tenant, "notes", migrations).transaction() as connection:
        await connection.execute(text("INSERT INTO notes (id, body) VALUES ('1', :body)"), {"body": tenant})


async def test_query_without_tenant_returns_no_rows(
    direct: Any, database: Database, stores: PostgresStores, migrations: Path
) -> None:
    await ApiKeys(database, b"p" * 32).create("acme", "alice")
    await add(stores, "acme", migrations)
    assert await direct.fetch("SELECT * FROM gatehouse.api_keys") == []
    assert await direct.fetch('SELECT * FROM "gatehouse-notes".notes') == []
    assert await direct.execute('DELETE FROM "gatehouse-notes".notes') == "DELETE 0"
    with pytest.raises(asyncpg.PostgresError, match=r"null value|row-level security"):
        await direct.execute("""INSERT INTO "gatehouse-notes".notes (id, body) VALUES ('2', 'no tenant')""")


async def test_statement_without_condition_is_limited_to_the_tenant(
    database: Database, stores: PostgresStores, migrations: Path
) -> None:
    keys = ApiKeys(database, b"p" * 32)
    for tenant in ("acme", "umbrella"):
        await keys.create(tenant, "alice")
        await add(stores, tenant, migrations)
    async with database.reading("acme") as connection:
        assert [row.tenant for row in await connection.execute(text("SELECT tenant FROM api_keys"))] == ["acme"]
    async with stores.store("acme", "notes", None).transaction() as connection:
        assert (await connection.execute(text("SELECT body FROM notes"))).all() == [("acme",)]
        assert (await connection.execute(text("UPDATE notes SET body = 'changed'"))).rowcount == 1
    async with stores.store("umbrella", "notes", None).transaction() as connection:
        assert (await connection.execute(text("SELECT body FROM notes"))).all() == [("umbrella",)]


async def test_row_cannot_be_inserted_for_another_tenant(stores: PostgresStores, migrations: Path) -> None:
    with pytest.raises(DBAPIError, match="row-level security"):
        async with stores.store("acme", "notes", migrations).transaction() as connection:
            await connection.execute(text("INSERT INTO notes (id, body, tenant) VALUES ('1', 'x', 'umbrella')"))


async def test_tenant_of_a_transaction_does_not_leak_into_the_next(
    database: Database, stores: PostgresStores, migrations: Path
) -> None:
    await add(stores, "acme", migrations)
    async with stores._pool.engine.connect() as connection:  # a pooled connection that was used before
        assert (await connection.execute(text('SELECT count(*) FROM "gatehouse-notes".notes'))).scalar_one() == 0


async def test_login_that_is_not_superuser_needs_no_other_role(
    postgres: str, postgres_url: str, tmp_path: Path
) -> None:
    name = f"r{secrets.token_hex(4)}"
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(f"CREATE ROLE {name} LOGIN; GRANT CREATE ON DATABASE {database_of(postgres_url)} TO {name}")
    await admin.close()
    database = await Database.open(tmp_path, postgres_url.replace("postgres:@", f"{name}:@"))
    await ApiKeys(database, b"p" * 32).create("acme", "alice")
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT current_user"))).scalar_one() == name
    await database.close()
    # A superuser that connects later assumes the role that owns the tables.
    database = await Database.open(tmp_path, postgres_url)
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT current_user"))).scalar_one() == name
        assert (await connection.execute(text("SELECT count(*) FROM api_keys"))).scalar_one() == 1
    await database.close()


async def test_database_and_notifications_recover_after_server_restart(
    database: Database, second_database: Database, postgres_url: str
) -> None:
    await insert(database, "before")
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gatehouse'")
    await admin.close()
    notified = asyncio.Event()
    database.on_change("tenants", lambda _keys: notified.set())
    await insert(second_database, "after")
    await asyncio.wait_for(notified.wait(), 5)
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM tenants"))).scalar_one() == 2


async def test_connection_lost_in_a_transaction_is_unavailable_and_rolled_back(
    database: Database, postgres_url: str
) -> None:
    async def cut_off_halfway() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("INSERT INTO tenants (name) VALUES ('half')"))
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            admin = await asyncpg.connect(postgres_url)
            await admin.execute("SELECT pg_terminate_backend($1, 5000)", pid)
            await admin.close()
            await connection.execute(text("INSERT INTO tenants (name) VALUES ('more')"))

    with pytest.raises(Fault) as caught:
        await cut_off_halfway()
    assert caught.value.kind is Kind.UNAVAILABLE
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM tenants"))).scalar_one() == 0


@pytest.mark.parametrize("url", ["postgresql://user:secret@127.0.0.1:1/none", "postgresql:///x?host=/nowhere"])
async def test_unreachable_database_is_a_fault_without_the_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(Fault) as caught:
        await Database.open(tmp_path, url)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "secret" not in caught.value.message


async def test_store_migration_that_inserts_rows_is_rejected(stores: PostgresStores, tmp_path: Path) -> None:
    (tmp_path / "0001_rows.sql").write_text("CREATE TABLE a (x TEXT); INSERT INTO a VALUES ('no tenant');")
    with pytest.raises(Fault, match="0001_rows failed"):
        async with stores.store("acme", "rows", tmp_path).transaction():
            pass


async def insert(database: Database, name: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("INSERT INTO tenants (name) VALUES (:name)"), {"name": name})


def database_of(url: str) -> str:
    found = re.search(r"/(\w+)\?", url)
    assert found is not None
    return found[1]
