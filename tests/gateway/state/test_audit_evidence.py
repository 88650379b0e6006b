"""Records cannot be removed unnoticed with write access to the database, and records lost in a crash are reported."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.state.audit import FILE, AuditTables
from gateway.state.audit_anchors import AnchorFiles
from gateway.state.audit_chain import COLUMNS, ChainBreak
from tests.flows.process import environment
from tests.gateway.state.audit_storage import KEY, SECRET, AuditStorage
from tests.gateway.state.test_audit import record


@pytest.fixture
def storage(tmp_path: Path, database_url: str | None) -> AuditStorage:
    return AuditStorage(tmp_path, database_url)


async def write(storage: AuditStorage, count: int, tenants: str = "a", tokens: list[str] | None = None) -> None:
    """Write records of a process that ends without a crash."""
    log = await storage.open_log()
    if tokens is not None:
        log.on_anchor(tokens.append)
    for number in range(count):
        log.put(record(number, tenants[number % len(tenants)]))
    await log.close()


@pytest.fixture
def tables(storage: AuditStorage) -> Iterator[AuditTables]:
    opened = storage.open_tables()
    yield opened
    opened.close()


def verify(storage: AuditStorage, lines: list[str] | None = None) -> list[ChainBreak]:
    tables = storage.open_tables()
    try:
        evidence, problems = AnchorFiles(storage.folder, KEY).read(lines or [])
        assert problems == []
        return [each for each in tables.verify(None, evidence) if each is not None]
    finally:
        tables.close()


def forget_files(storage: AuditStorage) -> None:
    shutil.rmtree(storage.folder / "audit-anchors")


def tamper(storage: AuditStorage, *statements: str) -> None:
    for sql in statements:
        asyncio.run(storage.execute(sql))


def relink(storage: AuditStorage) -> None:
    """Number and hash all records again, with everything that the database contains."""
    rows = asyncio.run(storage.query(f"SELECT writer, sequence, {', '.join(COLUMNS)} FROM audit ORDER BY sequence"))
    previous = ""
    for place, (writer, sequence, *row) in enumerate(rows, 1):
        encoded = json.dumps([previous, writer, place, *row], separators=(",", ":"), ensure_ascii=False)
        previous = sha256(encoded.encode()).hexdigest()
        tamper(storage, f"UPDATE audit SET sequence = {place}, hash = '{previous}' WHERE sequence = {sequence}")
    tamper(storage, f"UPDATE audit_chains SET last_sequence = {len(rows)}, last_hash = '{previous}'")


def test_intact_records_verify(storage: AuditStorage) -> None:
    asyncio.run(write(storage, 30, "abc"))
    assert verify(storage) == []


@pytest.mark.parametrize("with_files", [True, False])
def test_threat_43_records_cut_from_the_middle_and_relinked_are_missed(storage: AuditStorage, with_files: bool) -> None:
    asyncio.run(write(storage, 30))
    tamper(storage, "DELETE FROM audit WHERE sequence BETWEEN 10 AND 19")
    relink(storage)
    if not with_files:
        (storage.folder / "audit-anchors").rename(storage.folder / "moved")
        folder = storage.folder / "audit-anchors"
        folder.mkdir()
        shutil.copy(storage.folder / "moved" / "unkeyed.json", folder)
    (found,) = verify(storage)
    assert found.sequence == (20 if with_files and "anchor" in found.reason else 1)


def test_threat_43_first_records_deleted_as_if_they_had_expired_are_missed(storage: AuditStorage) -> None:
    asyncio.run(write(storage, 30))
    (hash,) = asyncio.run(storage.query("SELECT hash FROM audit WHERE sequence = 10"))[0]
    tamper(
        storage,
        "DELETE FROM audit WHERE sequence <= 10",
        f"UPDATE audit_chains SET pruned_sequence = 10, pruned_hash = '{hash}'",
    )
    forget_files(storage)
    (found,) = verify(storage)
    assert (found.sequence, found.reason) == (11, "the records before it were not deleted by the gateway")


def test_threat_43_last_records_deleted_are_missed(storage: AuditStorage) -> None:
    asyncio.run(write(storage, 30))
    (hash,) = asyncio.run(storage.query("SELECT hash FROM audit WHERE sequence = 20"))[0]
    tamper(
        storage,
        "DELETE FROM audit WHERE sequence > 20",
        f"UPDATE audit_chains SET last_sequence = 20, last_hash = '{hash}'",
    )
    (found,) = verify(storage)
    assert (found.tenant, found.sequence) == ("a", 21)
    assert "the anchor outside the database knows record 30" in found.reason


@pytest.mark.parametrize("source", ["files", "log"])
def test_threat_43_all_records_of_a_writer_deleted_are_missed(storage: AuditStorage, source: str) -> None:
    tokens: list[str] = []
    asyncio.run(write(storage, 10, "a", tokens))
    asyncio.run(write(storage, 10, "b"))
    tamper(storage, "DELETE FROM audit WHERE tenant = 'a'", "DELETE FROM audit_chains WHERE tenant = 'a'")
    if source == "log":
        forget_files(storage)
    (found,) = verify(storage, [f'{{"message": "audit log: ends of the hash chains: {each}"}}' for each in tokens])
    assert (found.tenant, found.sequence) == ("a", 1)


def test_threat_43_all_records_of_a_tenant_deleted_are_missed_without_anchors(storage: AuditStorage) -> None:
    asyncio.run(write(storage, 30, "abc"))
    tamper(storage, "DELETE FROM audit WHERE tenant = 'b'", "DELETE FROM audit_chains WHERE tenant = 'b'")
    forget_files(storage)
    (found,) = verify(storage)
    assert (found.tenant, found.reason) == ("", "10 records of this writer are missing")


def test_threat_43_older_copy_of_the_file_is_detected(tmp_path: Path) -> None:
    storage = AuditStorage(tmp_path, None)
    asyncio.run(write(storage, 10))
    shutil.copy(tmp_path / FILE, tmp_path / "older.db")
    asyncio.run(write(storage, 10))
    (tmp_path / "older.db").replace(tmp_path / FILE)
    (found,) = verify(storage)
    assert found.sequence == 1
    assert "the anchor outside the database knows record 10" in found.reason


def test_changed_anchor_is_reported(storage: AuditStorage) -> None:
    asyncio.run(write(storage, 10))
    (path,) = [each for each in (storage.folder / "audit-anchors").glob("*.json") if each.name != "unkeyed.json"]
    path.write_bytes(path.read_bytes().replace(b'"number":10', b'"number":9'))
    _, problems = AnchorFiles(storage.folder, KEY).read()
    assert problems == [f"the anchor in {path.name} was changed, or has another key"]


CRASH = """
import asyncio, os, signal, sys
from pathlib import Path
from gateway.state.audit import AuditLog
from tests.gateway.state.test_audit import record


async def main() -> None:
    log = await AuditLog.open(Path(sys.argv[1]), bytes(32), url=sys.argv[2] or None)
    for number in range(10):
        log.put(record(number))
    await log.flush()
    for number in range(10, 15):
        log.put(record(number))
    os.kill(os.getpid(), signal.SIGKILL)


asyncio.run(main())
"""


def test_threat_43_records_lost_by_kill_are_reported(storage: AuditStorage) -> None:
    assert bytes(32) == SECRET
    command = [sys.executable, "-c", CRASH, str(storage.folder), storage.url or ""]
    subprocess.run(command, env=environment(), check=False, timeout=60)
    (found,) = verify(storage)
    assert (found.sequence, found.reason) == (11, "5 records were not committed when the process ended")


async def test_records_in_the_queue_of_a_running_process_are_not_reported(storage: AuditStorage) -> None:
    log = await storage.open_log()
    async with storage.locked():
        log.put(record(0))
        assert await asyncio.to_thread(AnchorFiles(storage.folder, KEY)._read_counters) == {}
    await log.close()


def test_records_of_earlier_versions_verify_and_no_such_chain_can_be_added(storage: AuditStorage) -> None:
    tables = storage.open_tables()
    tables.close()
    insert_unkeyed(storage, "old")
    asyncio.run(write(storage, 3))
    assert verify(storage) == []
    insert_unkeyed(storage, "forged")
    assert [(each.writer, each.reason) for each in verify(storage)] == [("forged", "it has no keyed hash")]


def insert_unkeyed(storage: AuditStorage, writer: str) -> None:
    previous = ""
    for sequence in range(1, 4):
        row: tuple[Any, ...] = record(sequence, "legacy")
        encoded = json.dumps([previous, writer, sequence, *row], separators=(",", ":"))
        previous = sha256(encoded.encode()).hexdigest()
        values = ", ".join(repr(value) for value in (writer, sequence, *row, previous))
        tamper(storage, f"INSERT INTO audit (writer, sequence, {', '.join(COLUMNS)}, hash) VALUES ({values})")
    tamper(
        storage,
        "INSERT INTO audit_chains (tenant, writer, last_sequence, last_hash)"
        f" VALUES ('legacy', '{writer}', 3, '{previous}')",
    )
