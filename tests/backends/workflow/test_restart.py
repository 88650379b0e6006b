"""Workflow runs survive the process: after a stop or a kill they resume or are marked as failed."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from backends.workflow import run_store
from gateway.auth.api_keys import ApiKeys
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from tests.backends.workflow import sandbox
from tests.backends.workflow.conftest import BACKENDS
from tests.backends.workflow.workflow_calls import log_messages, read_log, run, step, wait_for_end


async def test_run_resumes_at_the_interrupted_step_after_a_restart(serving: Any) -> None:
    async with serving() as gateway:
        steps = (step("sandbox.echo", {"value": 1}, id="e"), step("sandbox.wait", {"name": "w"}), step("core.ping"))
        started = await run(gateway, *steps, wait=0)
        await sandbox.gate("w:begun").wait()
        key, before = gateway.key, traces(gateway)
    sandbox.gate("w").set()
    async with serving() as gateway:
        done = await wait_for_end(gateway.as_(key), started["runId"])
        after = traces(gateway)
        assert (done["status"], done["completedSteps"]) == ("succeeded", 3)
        assert [call["tool"] for call in sandbox.calls] == ["echo", "wait", "wait"]
        assert "workflow resumed after a restart" in await log_messages(gateway, started["runId"])
    # Steps belong to the trace of the call that started the run, even if another call triggered the takeover.
    assert after["sandbox.wait"] == after["core.ping"] == before["sandbox.echo"] == before["workflow.run"]
    assert after["workflow.status"] != before["workflow.run"]


def traces(gateway: Any) -> dict[str, str]:
    """Return the trace id of each tool's last call, from the log."""
    records = [json.loads(line) for line in gateway.log.getvalue().splitlines()]
    return {record["target"]: record["trace_id"] for record in records if "target" in record}


async def test_runs_of_all_tenants_resume_at_startup_without_a_client_call(serving: Any) -> None:
    async with serving() as gateway:
        other = gateway.as_(await gateway.new_key("other"))
        for each in (gateway, other):
            await run(each, step("sandbox.wait", {"name": each.key}), wait=0)
            await sandbox.gate(f"{each.key}:begun").wait()
        keys = (gateway.key, other.key)
    sandbox.reset()
    async with serving(), asyncio.timeout(20):
        for key in keys:
            await sandbox.gate(f"{key}:begun").wait()
    assert sorted(call["name"] for call in sandbox.calls) == sorted(keys)


async def test_interrupted_run_fails_when_on_restart_is_fail(serving: Any) -> None:
    async with serving() as gateway:
        started = await run(gateway, step("core.ping"), step("sandbox.wait", {"name": "w"}), wait=0)
        await sandbox.gate("w:begun").wait()
    async with serving(on_restart="fail") as gateway:
        done = await wait_for_end(gateway, started["runId"])
        assert (done["status"], done["completedSteps"]) == ("failed", 1)
        assert done["lastError"] == {"code": "INTERNAL_ERROR", "message": "The gateway stopped while this ran."}


async def test_run_interrupted_four_times_at_the_same_step_fails(serving: Any) -> None:
    """A step that crashes the process must not crash it again at every start."""
    async with serving() as gateway:
        started = await run(gateway, step("core.ping"), step("sandbox.wait", {"name": "w"}), wait=0)
        await sandbox.gate("w:begun").wait()
    for _ in range(3):
        sandbox.reset()
        async with serving(), asyncio.timeout(20):
            await sandbox.gate("w:begun").wait()
    sandbox.reset()
    async with serving() as gateway:
        done = await wait_for_end(gateway, started["runId"])
        assert (done["status"], done["completedSteps"]) == ("failed", 1)
        message = "The gateway stopped 4 times at step 2 of this run, which is not resumed again."
        assert done["lastError"] == {"code": "INTERNAL_ERROR", "message": message}
        assert sandbox.calls == []


async def test_run_that_progresses_can_be_interrupted_once_per_step(serving: Any) -> None:
    async with serving() as gateway:
        started = await run(gateway, *(step("sandbox.wait", {"name": str(number)}) for number in range(5)), wait=0)
        await sandbox.gate("0:begun").wait()
    for number in range(4):
        sandbox.gate(str(number)).set()
        async with serving(), asyncio.timeout(20):
            await sandbox.gate(f"{number + 1}:begun").wait()
    sandbox.gate("4").set()
    async with serving() as gateway:
        assert (await wait_for_end(gateway, started["runId"]))["status"] == "succeeded"


async def test_pending_cancel_request_is_applied_after_a_restart(serving: Any) -> None:
    async with serving() as gateway:
        started = await run(gateway, step("sandbox.wait", {"name": "w"}), wait=0)
        await sandbox.gate("w:begun").wait()
        store = gateway.app.stores.store("default", "gox", None)
        async with store.transaction() as connection:
            await connection.exec_driver_sql("UPDATE workflow_runs SET cancel_requested = 1")
    async with serving() as gateway:
        assert (await wait_for_end(gateway, started["runId"]))["status"] == "canceled"


async def test_worker_stops_writing_to_a_run_that_another_worker_took_over(
    serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A new process starts while the old one drains: results of the old process are discarded."""
    async with serving() as gateway:
        started = await run(gateway, step("sandbox.wait", {"name": "w"}), step("core.ping"), wait=0)
        await sandbox.gate("w:begun").wait()
        await _sql(gateway, "UPDATE workflow_runs SET worker = 'another'")
        sandbox.gate("w").set()
        async with asyncio.timeout(10):
            while "was taken over by another worker" not in caplog.text:
                await asyncio.sleep(0.02)
        assert await _sql(gateway, "SELECT status, completed_steps FROM workflow_runs") == [("running", 0)]
        assert await _sql(gateway, "SELECT message FROM workflow_logs WHERE message = 'step completed'") == []
        assert started["runId"]


async def test_only_runs_without_recent_log_lines_count_as_silent(serving: Any) -> None:
    async with serving() as gateway:
        started = await run(gateway, step("sandbox.wait", {"name": "w"}), wait=0)
        await sandbox.gate("w:begun").wait()
        store = gateway.app.stores.store("default", "gox", None)
        assert await run_store.list_running(store, 60) == []
        await _sql(gateway, "UPDATE workflow_logs SET logged_at = '2020-01-01T00:00:00.000000000Z'")
        assert [each.run_id for each in await run_store.list_running(store, 60)] == [started["runId"]]


async def _sql(gateway: Any, statement: str) -> list[tuple[Any, ...]]:
    store = gateway.app.stores.store("default", "gox", None)
    async with store.transaction() as connection:
        done = await connection.exec_driver_sql(statement)
        return [tuple(row) for row in done] if done.returns_rows else []


def _steps(folder: Path) -> list[dict[str, Any]]:
    return [
        step("core.ping", id="ping"),
        step("sandbox.flaky", {"name": "f", "fails": 1}, id="flaky", retry={"maxAttempts": 2}),
        step("sandbox.hold", {"folder": str(folder)}, id="hold"),
        step("sandbox.echo", {"value": 1}, id="skipped", when={"stepId": "ping", "path": "ok", "equals": False}),
        step("project.workspace_stats", id="stats", when={"stepId": "ping", "path": "ok", "equals": True}),
    ]


@asynccontextmanager
async def _process(config: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = ("-m", "gateway", "serve", "--config", str(config))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with httpx.AsyncClient(verify=False) as http:
            while True:
                try:
                    await http.get(f"http://127.0.0.1:{port}/healthz")
                    break
                except httpx.ConnectError:
                    assert process.returncode is None, "the gateway did not start"
                    await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def test_five_step_workflow_over_three_backends_has_the_same_result_after_kill_9(
    tmp_path: Path, unused_tcp_port: int, serving: Any
) -> None:
    port = unused_tcp_port
    data, held = tmp_path / "killed", tmp_path / "held"
    held.mkdir()
    settings = {"data_dir": str(data), "server": {"port": port}, "backends": BACKENDS}
    config = tmp_path / "gatehouse.yaml"
    config.write_text(yaml.safe_dump(settings))
    async with serving() as gateway:  # the reference run, without a kill
        undisturbed = tmp_path / "undisturbed"
        undisturbed.mkdir()
        (undisturbed / "go").touch()
        whole = await run(gateway, *_steps(undisturbed))
        expected = await log_messages(gateway, whole["runId"])
    async with _process(config, port) as process:
        gateway = await _client(gateway, data, port)
        started = await run(gateway, *_steps(held), wait=0)
        while not (held / "begun").exists():
            await asyncio.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    (held / "go").touch()
    async with _process(config, port):
        done = await wait_for_end(gateway, started["runId"])
        own = ("runId", "correlationId", "startedAt", "endedAt")
        assert {k: v for k, v in done.items() if k not in own} == {k: v for k, v in whole.items() if k not in own}
        after = await log_messages(gateway, started["runId"])
        resumed = after.index("workflow resumed after a restart")
        assert [*after[:resumed], *after[resumed + 2 :]] == expected
        assert after[resumed + 1] == "step started (attempt 1/1)"
        assert (await read_log(gateway, started["runId"]))[resumed + 1]["stepId"] == "hold"


async def _client(gateway: Any, data: Path, port: int) -> Any:
    database = await Database.open(data)
    try:
        key, _ = await ApiKeys(database, load_secret(data / "secrets", "pepper")).create("default", "dave")
    finally:
        await database.close()
    return replace(gateway, base=f"http://127.0.0.1:{port}", key=key)
