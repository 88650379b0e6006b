"""`gatehouse top` and `audit list` on a narrow terminal: correlation IDs are never truncated."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console
from typer.testing import Result

from gateway.cli.top import render
from gateway.state.audit import AuditLog, Row
from gateway.state.secrets import load_secret
from tests.gateway.state.test_audit import record

Run = Callable[..., Result]

ID = "0123456789abcdef"
LONG = {"target": "knowledge.search_the_whole_memory", "principal": "default/service:nightly-build"}
CALL = {
    **LONG,
    "at": 0.0,
    "method": "tools/call",
    "outcome": "invalid_input",
    "duration_us": 123456,
    "correlation_id": ID,
}
DATA = {
    "traffic": {
        "ok": [100000], "refused": [2000], "failed": [300], "width": 900, "calls": 102300,
        "p50_us": 1500, "p95_us": 44000, "p99_us": 123456, "tools": [],
    },
    "running": [{**LONG, "seconds": 12.5, "correlation_id": ID}],
    "calls": [CALL],
}  # fmt: skip


def test_top_at_80_columns_shows_complete_ids_without_wrapping() -> None:
    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        console.print(render(DATA))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert [line.split()[-1] for line in lines if LONG["target"][:5] in line] == [ID, ID]
    assert lines[0].endswith("300 failed")
    assert lines[1].endswith("p99 123.5 ms")
    assert [line.split()[0] for line in lines if line.startswith("00:00:00")] == ["00:00:00"], "UTC"


def test_audit_list_at_80_columns_shows_complete_ids(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def write() -> None:
        log = await AuditLog.open(tmp_path / ".gatehouse", load_secret(tmp_path / ".gatehouse" / "secrets", "pepper"))
        row = list(record(1, "a"))
        row[0] = time.time()
        log.put(cast("Row", tuple(ID if each == "id-1" else each for each in row)))
        await log.close()

    (tmp_path / ".gatehouse").mkdir(mode=0o700)
    asyncio.run(write())
    monkeypatch.setenv("COLUMNS", "80")
    assert ID in run("audit", "list").stdout
