"""Runs that are interrupted: cancelled, killed, or left behind, and taken up again."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import run_config
from tests.conftest import run_gateway

Json = dict[str, Any]

# The gateway of another process: starts one run, then only waits to be killed.
DRIVER = """
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.conftest import run_gateway

async def main():
    given = json.loads({given!r})
    async with run_gateway(Path({folder!r}), backends=given["backends"]) as gateway:
        answer = await gateway.call("launch_start_run", {{"run_config": given["config"]}})
        print(answer["result"]["structuredContent"]["run_id"], flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
POINTS = [("WORK_ITEM_STARTED", "W6.")]
if os.environ.get("GATEHOUSE_TESTS_LONG") == "1":
    POINTS += [(kind, f"W{number}.") for number in range(1, 8) for kind in ("WORK_ITEM_STARTED", "WORK_ITEM_FINISHED")]


def _left(run: Path) -> dict[str, str]:
    """Artifacts and drafts by path, without the run's own id."""
    files = [path for name in ("artifacts", "drafts") for path in (run / name).rglob("*") if path.is_file()]
    return {str(path.relative_to(run)): path.read_text().replace(run.name, "RUN") for path in files}


async def _ready(gateway: Any, folder: Path, run_id: str) -> Path:
    run = folder / "data" / "files" / "default" / "launch" / "runs" / run_id
    while (state := json.loads((run / "snapshot.json").read_bytes())["run_state"]) != "READY_FOR_PR":
        assert state != "FAILED"
        await asyncio.sleep(0.05)
    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a run leaves that nothing happened to. The sample makes the same commits everywhere."""
    folder = tmp_path_factory.mktemp("undisturbed")
    sample.make(folder / "repositories")

    async def journey() -> Path:
        async with run_gateway(folder, backends=_backends(folder)) as gateway:
            answer = await gateway.call("launch_start_run", {"run_config": _config(folder)})
            return await _ready(gateway, folder, answer["result"]["structuredContent"]["run_id"])

    return {path: text.replace(str(folder), "HERE") for path, text in _left(asyncio.run(journey())).items()}


def _backends(folder: Path) -> Json:
    root = folder / "repositories"
    options = {
        "local_roots": [str(root)],
        "site_repo_url": str(root / "site"),
        "github_api": None,
        "github_clone_base": root.as_uri(),
    }
    return {"launch": {"module": "backends.launch", "options": options}}


def _config(folder: Path) -> Json:
    options = Options.model_validate(_backends(folder)["launch"]["options"])
    config = run_config(options, "3d", "python", "en", sample.PRODUCT_URL, "0" * 40)
    return {**config, "required_sections": ["products", "docs", "kb"]}


def _happened(run: Path, kind: str, worker: str) -> bool:
    lines = (run / "events.ndjson").read_bytes().splitlines() if (run / "events.ndjson").exists() else []
    return any(kind.encode() in line and f":{worker}".encode() in line for line in lines)


@pytest.mark.parametrize(("kind", "worker"), POINTS)
async def test_a_run_whose_gateway_was_killed_ends_as_if_nothing_had_happened(
    kind: str, worker: str, place: Any, tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    given = json.dumps({"backends": _backends(tmp_path), "config": _config(tmp_path)})
    script = DRIVER.format(root=str(Path.cwd()), given=given, folder=str(tmp_path))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    run_id = (await process.stdout.readline()).decode().strip()
    run = tmp_path / "data" / "files" / "default" / "launch" / "runs" / run_id
    while not _happened(run, kind, worker):
        await asyncio.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    async with run_gateway(tmp_path, backends=_backends(tmp_path)) as gateway:
        resumed = (await gateway.call("launch_resume", {"run_id": run_id}))["result"]["structuredContent"]
        assert resumed["ok"], resumed
        assert resumed["status"]["state"] in ("PLAN_READY", "DRAFT_READY", "READY_FOR_PR", "DRAFTING", "LINKING")
        await _ready(gateway, tmp_path, run_id)
    assert {path: text.replace(str(tmp_path), "HERE") for path, text in _left(run).items()} == undisturbed


def _children(folder: Path) -> list[int]:
    """The processes at work in the run's folder."""
    places = (path for path in Path("/proc").glob("[0-9]*/cwd") if os.access(path, os.R_OK))
    return [int(path.parent.name) for path in places if path.resolve() == folder]


async def test_a_run_whose_worker_was_killed_waits_to_be_resumed(launch: Any) -> None:
    async with launch() as launching:
        run_id = await launching.start(required_sections=["docs"])
        while not (children := _children(launching.folder(run_id))):
            await launching.moved()
        for child in children:
            os.kill(child, signal.SIGKILL)
        while b"RUN_PAUSED" not in (launching.folder(run_id) / "events.ndjson").read_bytes():
            await launching.moved()
        assert launching.state(run_id) not in ("FAILED", "READY_FOR_PR")
        resumed = await launching.call("resume", run_id=run_id)
        assert resumed["ok"], resumed
        await launching.until(run_id, "READY_FOR_PR")


async def test_a_resume_does_again_only_what_changed(launch: Any) -> None:
    async with launch() as launching:
        run_id = await launching.ready(required_sections=["docs"])
        page = launching.page(run_id, "python/features.md")
        page.write_text(page.read_text().replace("## Features", "## Other"))
        assert not (await launching.call("validate", run_id=run_id))["validation_report"]["ok"]
        resumed = await launching.call("resume", run_id=run_id)
        assert resumed["status"]["state"] == "VALIDATING", resumed
        events = (await launching.call("get_run_telemetry", run_id=run_id))["events"]
        rewind = next(at for at, event in enumerate(events) if event["payload"].get("reason") == "RESUME_REWIND")
        again = [
            event["payload"]["work_item_id"].split(":")[1]
            for event in events[rewind:]
            if event["type"] == "WORK_ITEM_STARTED"
        ]
        assert again == ["W7.Validator"]
        assert "## Other" in page.read_text()


async def test_a_cancelled_run_stops_and_stays_cancelled(launch: Any) -> None:
    async with launch() as launching:
        run_id = await launching.start()
        cancelled = await launching.call("cancel", run_id=run_id)
        assert (cancelled["cancelled"], cancelled["state"]) == (True, "CANCELLED")
        assert (await launching.call("cancel", run_id=run_id))["ok"]
        for tool in ("resume", "validate", "fix_next", "open_pr"):
            refused = await launching.call(tool, run_id=run_id)
            assert (refused["error"]["code"], refused["error"]["details"]["current_state"]) == (
                "ILLEGAL_STATE",
                "CANCELLED",
            )
        events = launching.folder(run_id) / "events.ndjson"
        told = [json.loads(line) for line in events.read_bytes().splitlines()]
        moves = [event["payload"]["new_state"] for event in told if event["type"] == "RUN_STATE_CHANGED"]
        assert moves[-1] == "CANCELLED"
        assert moves.count("CANCELLED") == 1
        assert [run["state"] for run in (await launching.call("list_runs"))["runs"]] == ["CANCELLED"]


async def test_a_repository_that_is_not_there_fails_the_run_with_a_report(launch: Any, tmp_path: Path) -> None:
    async with launch() as launching:
        run_id = await launching.start(github_repo_url=str(tmp_path / "repositories" / "gone"))
        await launching.until(run_id, "FAILED")
        report = await launching.call("get_artifact", run_id=run_id, artifact_name="failure_summary.md")
        assert "REPO_NOT_FOUND" in report["artifact"]["content"]
        assert str(tmp_path) not in report["artifact"]["content"]
        assert (await launching.call("resume", run_id=run_id))["error"]["code"] == "ILLEGAL_STATE"


async def test_pages_outside_the_allowed_paths_fail_the_run(launch: Any) -> None:
    async with launch() as launching:
        run_id = await launching.start(required_sections=["docs"], allowed_paths=["content/kb.aspose.org"])
        await launching.until(run_id, "FAILED")
        events = (await launching.call("get_run_telemetry", run_id=run_id))["events"]
        failed = [event["payload"]["error"]["code"] for event in events if event["type"] == "WORK_ITEM_FAILED"]
        assert failed == ["ALLOWED_PATHS_VIOLATION"]
        assert not list((launching.folder(run_id) / "work/site/content/docs.aspose.org").rglob("3d/**/*.md"))
