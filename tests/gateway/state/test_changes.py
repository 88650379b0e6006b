"""The change feed names the table and key of each change, and reports a gap when it cannot."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from gateway.state.changes import TABLES, Change, ChangeListeners, Keys, Table
from gateway.state.database import FILE, MIGRATIONS, Database
from gateway.state.migrations import _statements
from gateway.state.postgres import ROLE
from gateway.state.tenants import Tenants

INSERTS = {
    "tenants": "INSERT INTO tenants (name) VALUES ('a')",
    "signing_keys": "INSERT INTO signing_keys (kid, sealed, created_at) VALUES ('k1', 'x', 1)",
    "revocations": "INSERT INTO revocations (kind, value, at, expires_at) VALUES ('user', 'a/user:b:c', 1, 2)",
    "api_keys": "INSERT INTO api_keys (tenant, id, digest, subject, kind, scopes, member_of, label, created_at)"
    " VALUES ('a', 'id1', 'd', 's', 'user', '', '[]', '', 1)",
    "session_facts": "INSERT INTO session_facts (digest, fact, subject, value, expires_at, sequence)"
    " VALUES ('a:1', 'ended', '', 'yes', 9, 1)",
    "catalogue_pins": "INSERT INTO catalogue_pins (namespace, whose, tool, digest, parts, first_seen)"
    " VALUES ('git', 'shared', 't', 'd', '{}', 1)",
    "accounts": "INSERT INTO accounts (tenant, principal, backend, id, kind, state, issuer, version, access, client,"
    " scopes, connected_at)"
    " VALUES ('a', 'a/user:b', 'git', 'git a/user:b', 'key', 'connected', '', 1, 'x', '{}', '', 1)",
}
UPDATES = {
    "tenants": "UPDATE tenants SET suspended = TRUE",
    "signing_keys": "UPDATE signing_keys SET retired_at = 5",
    "revocations": "INSERT INTO revocations (kind, value, at, expires_at) VALUES ('user', 'a/user:b:c', 3, 4)"
    " ON CONFLICT (kind, value) DO UPDATE SET at = excluded.at",
    "api_keys": "UPDATE api_keys SET revoked_at = 5",
    "session_facts": "UPDATE session_facts SET sequence = 2",
    "catalogue_pins": "UPDATE catalogue_pins SET accepted_at = 5",
    "accounts": "UPDATE accounts SET state = 'reconnect'",
}
KEYS = {
    "tenants": "a",
    "signing_keys": "k1",
    "revocations": "user:a/user:b:c",
    "api_keys": "id1",
    "session_facts": "a:1",
    "catalogue_pins": "git",
    "accounts": "git a/user:b",
}


class Recorder:
    """Collects the keys that listeners receive, and waits for them."""

    def __init__(self, database: Database) -> None:
        self._queues: dict[Table, asyncio.Queue[Keys]] = {}
        for table in TABLES:
            queue = self._queues[table] = asyncio.Queue()  # type: ignore[index]
            database.on_change(table, queue.put_nowait)  # type: ignore[arg-type]

    async def next(self, table: Any) -> Keys:
        return await asyncio.wait_for(self._queues[table].get(), 5)

    def received(self) -> set[str]:
        return {table for table, queue in self._queues.items() if not queue.empty()}


@pytest.fixture
async def recorder(database: Database, second_database: Database) -> Recorder:
    recorder = Recorder(database)
    if "Postgres" in type(database._engine).__name__:
        # Reported once the LISTEN connection is ready; it may have been ready before.
        await write(second_database, "INSERT INTO tenants (name) VALUES ('ready')")
        while (keys := await recorder.next("tenants")) is None:
            for table in TABLES - {"tenants"}:
                assert await recorder.next(table) is None
        assert keys == {"ready"}
        await write(second_database, "DELETE FROM tenants")
        assert await recorder.next("tenants") == {"ready"}
    return recorder


async def write(database: Database, *statements: str) -> None:
    async with database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement.replace(":", "\\:")))


@pytest.mark.parametrize("table", sorted(TABLES))
async def test_each_change_of_a_followed_table_reports_its_table_and_key(
    table: Any, recorder: Recorder, second_database: Database
) -> None:
    announces_inserts = table not in ("api_keys", "catalogue_pins")
    announces_deletes = table != "session_facts"
    await write(second_database, INSERTS[table])
    if announces_inserts:
        assert await recorder.next(table) == {KEYS[table]}
    await write(second_database, UPDATES[table])
    assert await recorder.next(table) == {KEYS[table]}
    await write(second_database, f"DELETE FROM {table}")
    if announces_deletes:
        keys = await recorder.next(table)
        assert keys is not None
        assert KEYS[table] in keys
    assert recorder.received() == set()


async def test_writes_to_other_tables_and_rollbacks_report_nothing(
    recorder: Recorder, database: Database, second_database: Database
) -> None:
    await write(
        second_database,
        "INSERT INTO browser_sessions (digest, tenant, subject, expires_at) VALUES ('d', 'a', 's', 9)",
        INSERTS["api_keys"],
        "UPDATE api_keys SET last_used_at = 5",
        "UPDATE accounts SET used_at = 5, lease_until = 6",
        INSERTS["catalogue_pins"],
    )

    async def fail() -> None:
        async with second_database.transaction() as connection:
            await connection.execute(text("INSERT INTO tenants (name) VALUES ('half')"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    await write(second_database, "INSERT INTO tenants (name) VALUES ('whole')")
    assert await recorder.next("tenants") == {"whole"}
    assert recorder.received() == set()


async def test_changes_of_one_transaction_are_reported_together_or_in_order(
    recorder: Recorder, second_database: Database
) -> None:
    await write(second_database, *(f"INSERT INTO tenants (name) VALUES ('t{number}')" for number in range(50)))
    seen: set[str] = set()
    while len(seen) < 50:
        keys = await recorder.next("tenants")
        assert keys is not None
        seen |= keys
    assert seen == {f"t{number}" for number in range(50)}


async def test_renamed_row_reports_both_keys(recorder: Recorder, second_database: Database) -> None:
    await write(second_database, INSERTS["tenants"])
    assert await recorder.next("tenants") == {"a"}
    await write(second_database, "UPDATE tenants SET name = 'b'")
    seen: set[str] = set()
    while seen != {"a", "b"}:
        keys = await recorder.next("tenants")
        assert keys is not None
        seen |= keys


async def test_own_commit_is_reported_within_a_second(recorder: Recorder, database: Database) -> None:
    await write(database, INSERTS["tenants"])
    committed = time.monotonic()
    assert await recorder.next("tenants") == {"a"}
    assert time.monotonic() - committed < 1


async def test_table_without_triggers_cannot_be_followed(database: Database) -> None:
    async def load(_keys: Keys) -> None: ...

    with pytest.raises(ValueError, match="oauth_clients has no change triggers"):
        await database.follow("oauth_clients", load)  # type: ignore[arg-type]


async def test_many_changed_keys_load_the_whole_table(database: Database, second_database: Database) -> None:
    loads: asyncio.Queue[Keys] = asyncio.Queue()

    async def load(keys: Keys) -> None:
        loads.put_nowait(keys)

    await database.follow("tenants", load)
    assert await loads.get() is None
    await write(second_database, "INSERT INTO tenants (name) VALUES ('one')")
    while (keys := await asyncio.wait_for(loads.get(), 5)) is None:
        pass
    assert keys == {"one"}
    await write(second_database, *(f"INSERT INTO tenants (name) VALUES ('t{number}')" for number in range(600)))
    assert await asyncio.wait_for(loads.get(), 5) is None


def test_missed_changes_and_changes_without_key_mean_any_row() -> None:
    listeners, received = ChangeListeners(), dict[str, Keys]()
    listeners.add("tenants", lambda keys: received.update(tenants=keys))
    listeners.add("api_keys", lambda keys: received.update(api_keys=keys))
    listeners.publish([Change("tenants", "a"), Change("tenants", None), Change("users", "x")])
    assert received == {"tenants": None}
    received.clear()
    listeners.publish(None)
    assert received == {"tenants": None, "api_keys": None}


# ---- SQLite


class TestSqlite:
    @pytest.fixture
    def database_url(self) -> None:
        return None

    @pytest.fixture
    def raw(self, database: Database, tmp_path: Path) -> Any:
        """A plain connection, as an older version or the sqlite3 command has."""
        return sqlite3.connect(tmp_path / "data" / FILE, isolation_level=None, timeout=10)

    async def test_writer_that_knows_nothing_of_the_feed_is_noticed(self, recorder: Recorder, raw: Any) -> None:
        with closing(raw):
            raw.execute("UPDATE tenants SET suspended = 1")
            raw.execute("INSERT INTO tenants (name) VALUES ('old')")
        assert await recorder.next("tenants") == {"old"}

    async def test_more_changes_than_are_kept_are_reported_as_a_gap(self, recorder: Recorder, raw: Any) -> None:
        with closing(raw):
            raw.execute("BEGIN")
            raw.executemany("INSERT INTO tenants (name) VALUES (?)", [(f"t{number}",) for number in range(10_001)])
            raw.execute("COMMIT")
            (kept,) = raw.execute("SELECT count(*) FROM changes").fetchone()
        assert kept == 10_000
        assert await recorder.next("tenants") is None
        assert await recorder.next("revocations") is None

    async def test_feed_is_exact_again_after_a_gap(self, recorder: Recorder, raw: Any) -> None:
        with closing(raw):
            raw.execute("DELETE FROM changes")
            assert await recorder.next("tenants") is None
            raw.execute("INSERT INTO tenants (name) VALUES ('next')")
            keys = await recorder.next("tenants")
            assert keys is None, "the position itself was deleted"
            raw.execute("INSERT INTO tenants (name) VALUES ('exact')")
            assert await recorder.next("tenants") == {"exact"}

    async def test_file_restored_from_an_older_backup_is_reported_as_a_gap(
        self, recorder: Recorder, raw: Any, tmp_path: Path
    ) -> None:
        with closing(raw), closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
            raw.backup(backup)
            raw.execute("INSERT INTO tenants (name) VALUES ('lost')")
            assert await recorder.next("tenants") == {"lost"}
            backup.backup(raw)
        assert await recorder.next("tenants") is None

    async def test_old_file_gets_the_feed_while_another_connection_writes(self, tmp_path: Path) -> None:
        """A version without the feed has the file open while a new version migrates it."""
        path = tmp_path / FILE
        with closing(sqlite3.connect(path, isolation_level=None)) as old:
            old.execute("PRAGMA journal_mode=WAL")
            old.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, digest TEXT, applied_at REAL)")
            _apply_without_feed(old)
            database = await Database.open(tmp_path)
            recorder = Recorder(database)
            assert database.applied_migrations[0] == "0050_changes"
            old.execute("INSERT INTO tenants (name) VALUES ('from-old')")
            assert await recorder.next("tenants") == {"from-old"}
            await database.close()


def _apply_without_feed(connection: sqlite3.Connection) -> None:
    import hashlib

    for path in sorted(MIGRATIONS.glob("*.sql")):
        if path.name >= "0050" or ".postgres." in path.name:
            continue
        sql = path.read_text(encoding="utf-8")
        for statement in _statements(sql):
            connection.execute(statement)
        number, _, name = path.name.removesuffix(".sql").partition("_")
        digest = hashlib.sha256(sql.encode()).hexdigest()
        connection.execute("INSERT INTO migrations VALUES (?, ?, ?, 1)", (int(number), name, digest))


# ---- PostgreSQL


class TestPostgres:
    @pytest.fixture
    def database_url(self, postgres_url: str) -> str:
        return postgres_url

    @pytest.fixture
    async def raw(self, postgres_url: str, database: Database) -> AsyncGenerator[Any]:
        """A connection with the gateway's role, as an older version has."""
        connection = await asyncpg.connect(postgres_url, server_settings={"role": ROLE, "search_path": "gatehouse"})
        yield connection
        await connection.close()

    async def test_writer_of_an_older_version_is_noticed(self, recorder: Recorder, raw: Any) -> None:
        async with raw.transaction():
            await raw.execute("SELECT pg_notify('gatehouse', '')")  # as versions up to 0.1 do in each transaction
            await raw.execute("INSERT INTO tenants (name) VALUES ('old')")
        keys = {await recorder.next("tenants"), await recorder.next("tenants")}
        assert keys == {None, frozenset({"old"})}

    async def test_listener_of_an_older_version_is_notified(
        self, recorder: Recorder, raw: Any, database: Database
    ) -> None:
        notified = asyncio.Event()
        await raw.add_listener("gatehouse", lambda *_notification: notified.set())
        await write(database, INSERTS["tenants"])
        await asyncio.wait_for(notified.wait(), 5)

    async def test_key_too_long_for_a_notification_reports_any_row(self, recorder: Recorder, raw: Any) -> None:
        await raw.execute("INSERT INTO revocations (kind, value, at, expires_at) VALUES ('user', $1, 1, 2)", "ä" * 5000)
        assert await recorder.next("revocations") is None

    async def test_longest_key_of_a_notification_is_reported(self, recorder: Recorder, raw: Any) -> None:
        payload = '{"key": "user:", "table": "revocations"}'
        value = "x" * (7999 - len(payload))
        await raw.execute("INSERT INTO revocations (kind, value, at, expires_at) VALUES ('user', $1, 1, 2)", value)
        assert await recorder.next("revocations") == {f"user:{value}"}

    async def test_same_key_twice_in_a_transaction_is_reported_once(self, recorder: Recorder, raw: Any) -> None:
        async with raw.transaction():
            await raw.execute("INSERT INTO tenants (name) VALUES ('a')")
            for _ in range(3):
                await raw.execute("UPDATE tenants SET suspended = NOT suspended")
        assert await recorder.next("tenants") == {"a"}
        await raw.execute("INSERT INTO tenants (name) VALUES ('z')")
        assert await recorder.next("tenants") == {"z"}

    async def test_changes_while_the_listen_connection_is_terminated_are_not_missed(
        self, database: Database, raw: Any, postgres_url: str
    ) -> None:
        tenants, arrived = await Tenants.open(database), asyncio.Event()
        tenants.on_change(arrived.set)
        admin = await asyncpg.connect(postgres_url)
        for name in (f"t{number}" for number in range(5)):
            await _wait_for_listen(admin)
            # One script: the row is committed before the gateway can connect again.
            await admin.execute(f"{_END_LISTEN}; INSERT INTO gatehouse.tenants (name) VALUES ('{name}')")
            async with asyncio.timeout(5):
                while tenants.get(name) is None:
                    arrived.clear()
                    await arrived.wait()
        await admin.close()


_LISTENING = "FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^(LISTEN .*|SELECT 1)$'"
_END_LISTEN = f"SELECT pg_terminate_backend(pid, 5000) {_LISTENING}"


async def _wait_for_listen(admin: Any) -> None:
    async with asyncio.timeout(5):
        while not await admin.fetchval(f"SELECT count(*) {_LISTENING}"):
            await asyncio.sleep(0.01)
