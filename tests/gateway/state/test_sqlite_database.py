"""SQLite only: the database file."""

import os
import stat
from pathlib import Path

import pytest

from gateway.errors import Fault, Kind
from gateway.state.database import FILE, Database


@pytest.fixture
def database_url() -> None:
    """SQLite only."""


async def test_folder_and_files_are_private_to_their_owner(database: Database, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    for path in (tmp_path / "data").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


async def test_mode_of_a_file_open_to_others_is_tightened(tmp_path: Path) -> None:
    (tmp_path / FILE).touch(mode=0o666)
    os.chmod(tmp_path / FILE, 0o666)
    database = await Database.open(tmp_path)
    await database.close()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


async def test_connections_use_wal_and_enforce_foreign_keys(database: Database) -> None:
    async with database.transaction() as connection:
        assert (await connection.exec_driver_sql("PRAGMA journal_mode")).scalar_one() == "wal"
        assert (await connection.exec_driver_sql("PRAGMA foreign_keys")).scalar_one() == 1
        assert (await connection.exec_driver_sql("PRAGMA synchronous")).scalar_one() == 1
        assert (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar_one() == 10_000


async def test_data_folder_that_is_a_file_is_rejected_with_advice(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(Fault, match="belong to the gateway's user") as caught:
        await Database.open(tmp_path / "data")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert str(tmp_path) not in caught.value.message


async def test_file_that_is_not_a_database_is_rejected_with_advice(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 1000)
    with pytest.raises(Fault, match="restore it from a backup") as caught:
        await Database.open(tmp_path)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert (tmp_path / FILE).read_bytes() == b"not a database" * 1000
