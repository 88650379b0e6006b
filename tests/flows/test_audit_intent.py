"""A call that may write is recorded before it is sent: a crash or an unreachable audit log cannot hide it."""

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.state.call_history import CallFilter
from tests.conftest import Running
from tests.flows.process import FILE, serving, until, write_settings
from tests.flows.process import run as command

NOTES = """
import asyncio
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("notes")


@server.tool()
def write(text: str) -> str:
    with Path("written.txt").open("a") as file:
        file.write(text + "\\n")
    return "written"


@server.tool()
async def hang() -> str:
    Path("hanging").touch()
    await asyncio.sleep(3600)
    return "never"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def read() -> str:
    return "read"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notes_module.py").write_text(NOTES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(folder: Path, sql: str = "SELECT target, outcome, number, intent FROM audit ORDER BY number") -> list[Any]:
    with closing(sqlite3.connect(folder / "data" / "audit.db")) as database:
        return database.execute(sql).fetchall()


def error_kind(answer: Any) -> str:
    return answer["result"]["_meta"]["gatehouse/error"]["kind"]


async def test_write_has_a_record_before_and_after_it_and_a_read_has_one(start: Any, folder: Path) -> None:
    async with start(backends={"notes": {"module": "notes_module"}}) as gateway:
        await gateway.call("notes_write", {"text": "a"})
        await gateway.call("notes_read")
        await gateway.app.audit.flush()
        assert rows(folder) == [
            ("notes.write", "intent", 1, 0),
            ("notes.write", "ok", 2, 1),
            ("notes.read", "ok", 3, 0),
        ]
        listed = await gateway.app.call_history.calls.find(CallFilter(tenant="default"))
        assert [each.outcome for each in listed] == ["ok", "ok"], "an intent with an end is not a call of its own"


async def test_grouped_durability_writes_one_record(start: Any, folder: Path) -> None:
    settings = {"backends": {"notes": {"module": "notes_module"}}, "audit": {"durability": "grouped"}}
    async with start(**settings) as gateway:
        await gateway.call("notes_write", {"text": "a"})
        await gateway.app.audit.flush()
        assert [row[:2] for row in rows(folder)] == [("notes.write", "ok")]


async def test_threat_44_write_is_refused_and_read_goes_on_while_the_audit_log_cannot_be_written(
    start: Any, folder: Path
) -> None:
    async with start(backends={"notes": {"module": "notes_module"}}) as gateway:
        await gateway.call("notes_write", {"text": "before"})
        with closing(sqlite3.connect(folder / "data" / "audit.db")) as database:
            database.execute("ALTER TABLE audit RENAME TO hidden")
            for _ in range(3):
                assert error_kind(await gateway.call("notes_write", {"text": "during"})) == "unavailable"
                assert (await gateway.call("notes_read"))["result"]["content"][0]["text"] == "read"
            database.execute("ALTER TABLE hidden RENAME TO audit")
        await wait_until_written(gateway)
    assert set((folder / "written.txt").read_text().split()) == {"before", "after"}


async def wait_until_written(gateway: Running) -> None:
    async with asyncio.timeout(10):
        while (await gateway.call("notes_write", {"text": "after"}))["result"].get("isError"):
            await asyncio.sleep(0.05)


def test_threat_44_call_in_progress_at_a_kill_is_shown_with_unknown_outcome(folder: Path) -> None:
    backend = {"module": "notes_module"}
    write_settings(folder, backends={"notes": backend}, data_dir=str(folder / "data"), server={"port": 0})
    with serving(folder, "--config", FILE) as served:

        def hang() -> None:
            with suppress(httpx.HTTPError):
                served.call("notes_hang")

        thread = threading.Thread(target=hang, daemon=True)
        thread.start()
        until((folder / "hanging").exists, "the tool runs")
        served.process.kill()
        served.process.wait()
    shown = command(folder, "audit", "list", "--config", FILE, COLUMNS="200")
    assert "notes.hang" in shown.stdout
    assert "outcome unknown" in shown.stdout
    verified = command(folder, "audit", "verify", "--config", FILE)
    assert verified.returncode == 0, verified.stderr
