"""`gatehouse audit`: list, verify and export."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.state.audit import FILE, AuditLog
from gateway.state.secrets import load_secret
from tests.gateway.state.test_audit import record

Run = Callable[..., Result]


@pytest.fixture
def audit_file(tmp_path: Path) -> Path:
    data = tmp_path / ".gatehouse"
    data.mkdir(mode=0o700)

    async def write() -> None:
        log = await AuditLog.open(data, load_secret(data / "secrets", "pepper"))
        for number in range(10):
            log.put((time.time() - (10 - number) * 3600, *record(number, "ab"[number % 2])[1:]))
        await log.close()

    asyncio.run(write())
    return data / FILE


def test_list_shows_the_newest_records(run: Run, audit_file: Path) -> None:
    shown = run("audit", "list", "--limit", "3")
    assert shown.exit_code == 0, shown.stderr
    assert [line.split()[-1] for line in shown.stdout.splitlines()[1:]] == ["id-7", "id-8", "id-9"]
    filtered = json.loads(run("audit", "list", "--tenant", "a", "--subject", "alice", "--since", "4h", "--json").stdout)
    assert [each["correlation_id"] for each in filtered] == ["id-8"]
    assert run("audit", "list", "--subject", "alice").exit_code == 2
    assert "--since must be a number" in run("audit", "list", "--since", "soon").stderr


def test_verify_reports_the_first_invalid_record(run: Run, audit_file: Path) -> None:
    valid = run("audit", "verify")
    assert (valid.exit_code, valid.stdout) == (0, "10 records verified, 1 anchor\n")
    with closing(sqlite3.connect(audit_file)) as connection, connection:
        connection.execute("UPDATE audit SET outcome = 'denied' WHERE tenant = 'b' AND sequence >= 3")
    broken = run("audit", "verify")
    assert broken.exit_code == 1
    assert "tenant b" in broken.stderr
    assert "record 3 is the first invalid one: it was changed" in broken.stderr
    assert json.loads(run("audit", "verify", "--json").stdout)["broken"][0]["sequence"] == 3
    assert run("audit", "verify", "--tenant", "a").exit_code == 0


def test_export_prints_one_line_per_record(run: Run, audit_file: Path) -> None:
    lines = [json.loads(line) for line in run("audit", "export").stdout.splitlines()]
    assert [each["correlation_id"] for each in lines] == [f"id-{number}" for number in range(10)]
    assert all(len(each["hash"]) == 65 and each["sequence"] for each in lines)
    assert len(run("audit", "export", "--tenant", "a").stdout.splitlines()) == 5
