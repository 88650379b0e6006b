"""Interrupted runs: cancel, killed processes and resume."""

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
from backends.launch.quickstart.config import build_run_config
from tests.conftest import run_gateway

Json = dict[str, Any]

# Script for a gateway in another process: starts one run, then waits to be killed.
DRIVER = """
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.conftest import run_gateway

async def main():
    payload = json.loads({payload!r})
    async with run_gateway(Path({folder!r}), backends=payload["backends"]) as gateway:
        answer = await gateway.call("launch_start_run", {{"run_config": payload["config"]}})
        print(answer["result"]["structuredContent"]["run_id"], flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
POINTS = [("WORK_ITEM_STARTED", "W6.")]
if os.environ.get("GATEHOUSE_TESTS_LONG") == "1":
    POINTS += [(kind, f"W{number}.") for number in range(1, 8) for kind in ("WORK_ITEM_STARTED", "WORK_ITEM_FINISHED")]


def _outputs(run: Path) -> dict[str, str]:
    """Return artifacts and drafts by path, with the run id replaced."""
    files = [path for name in ("artifacts", "drafts") for path in (run / name).rglob("*") if path.is_file()]
    return {str(path.relative_to(run)): path.read_text().replace(run.name, "RUN") for path in files}


async def _ready(gateway: Any, folder: Path, run_id: str) -> Path:
    run = folder / "data" / "files" / "default" / "launch" / "runs" / run_id
    while (state := json.loads((run / "snapshot.json").read_bytes())["run_state"]) != "READY_FOR_PR":
        assert state != "FAILED"
        await asyncio.sleep(0.05)
    return run


@pytest.fixture(scope="module")
def reference_outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The outputs of an uninterrupted run. The sample repositories have the same commits everywhere."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    sample.create_repositories(folder / "repositories")

    async def complete_run() -> Path:
        async with run_gateway(folder, backends=_backends(folder)) as gateway:
            answer = await gateway.call("launch_start_run", {"run_config": _config(folder)})
            return await _ready(gateway, folder, answer["result"]["structuredContent"]["run_id"])

    return {path: text.replace(str(folder), "HERE") for path, text in _outputs(asyncio.run(complete_run())).items()}


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
    config = build_run_config(options, "3d", "python", "en", sample.PRODUCT_URL, "0" * 40)
    return {**config, "required_sections": ["products", "docs", "kb"]}


def _has_event(run: Path, kind: str, worker: str) -> bool:
    lines = (run / "events.ndjson").read_bytes().splitlines() if (run / "events.ndjson").exists() else []
    return any(kind.encode() in line and f":{worker}".encode() in line for line in lines)


@pytest.mark.parametrize(("kind", "worker"), POINTS)
async def test_run_resumed_after_a_gateway_kill_produces_the_same_outputs(
    kind: str, worker: str, repositories: Any, tmp_path: Path, reference_outputs: dict[str, str]
) -> None:
    payload = json.dumps({"backends": _backends(tmp_path), "config": _config(tmp_path)})
    script = DRIVER.format(root=str(Path.cwd()), payload=payload, folder=str(tmp_path))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    run_id = (await process.stdout.readline()).decode().strip()
    run = tmp_path / "data" / "files" / "default" / "launch" / "runs" / run_id
    while not _has_event(run, kind, worker):
        await asyncio.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    async with run_gateway(tmp_path, backends=_backends(tmp_path)) as gateway:
        resumed = (await gateway.call("launch_resume", {"run_id": run_id}))["result"]["structuredContent"]
        assert resumed["ok"], resumed
        assert resumed["status"]["state"] in ("PLAN_READY", "DRAFT_READY", "READY_FOR_PR", "DRAFTING", "LINKING")
        await _ready(gateway, tmp_path, run_id)
    assert {path: text.replace(str(tmp_path), "HERE") for path, text in _outputs(run).items()} == reference_outputs


def _children(folder: Path) -> list[int]:
    """Return the processes whose working directory is the run's folder."""
    places = (path for path in Path("/proc").glob("[0-9]*/cwd") if os.access(path, os.R_OK))
    return [int(path.parent.name) for path in places if path.resolve() == folder]


async def test_run_is_paused_after_its_worker_was_killed_and_can_be_resumed(launch: Any) -> None:
    async with launch() as launcher:
        run_id = await launcher.start(required_sections=["docs"])
        while not (children := _children(launcher.folder(run_id))):
            await launcher.pause()
        for child in children:
            os.kill(child, signal.SIGKILL)
        while b"RUN_PAUSED" not in (launcher.folder(run_id) / "events.ndjson").read_bytes():
            await launcher.pause()
        assert launcher.state(run_id) not in ("FAILED", "READY_FOR_PR")
        resumed = await launcher.call("resume", run_id=run_id)
        assert resumed["ok"], resumed
        await launcher.until(run_id, "READY_FOR_PR")


async def test_resume_repeats_only_work_with_changed_inputs(launch: Any) -> None:
    async with launch() as launcher:
        run_id = await launcher.ready(required_sections=["docs"])
        page = launcher.page(run_id, "python/features.md")
        page.write_text(page.read_text().replace("## Features", "## Other"))
        assert not (await launcher.call("validate", run_id=run_id))["validation_report"]["ok"]
        resumed = await launcher.call("resume", run_id=run_id)
        assert resumed["status"]["state"] == "VALIDATING", resumed
        events = (await launcher.call("get_run_telemetry", run_id=run_id))["events"]
        rewind = next(at for at, event in enumerate(events) if event["payload"].get("reason") == "RESUME_REWIND")
        again = [
            event["payload"]["work_item_id"].split(":")[1]
            for event in events[rewind:]
            if event["type"] == "WORK_ITEM_STARTED"
        ]
        assert again == ["W7.Validator"]
        assert "## Other" in page.read_text()


async def test_cancelled_run_stays_cancelled(launch: Any) -> None:
    async with launch() as launcher:
        run_id = await launcher.start()
        cancelled = await launcher.call("cancel", run_id=run_id)
        assert (cancelled["cancelled"], cancelled["state"]) == (True, "CANCELLED")
        assert (await launcher.call("cancel", run_id=run_id))["ok"]
        for tool in ("resume", "validate", "fix_next", "open_pr"):
            refused = await launcher.call(tool, run_id=run_id)
            assert (refused["error"]["code"], refused["error"]["details"]["current_state"]) == (
                "ILLEGAL_STATE",
                "CANCELLED",
            )
        events = launcher.folder(run_id) / "events.ndjson"
        recorded = [json.loads(line) for line in events.read_bytes().splitlines()]
        moves = [event["payload"]["new_state"] for event in recorded if event["type"] == "RUN_STATE_CHANGED"]
        assert moves[-1] == "CANCELLED"
        assert moves.count("CANCELLED") == 1
        assert [run["state"] for run in (await launcher.call("list_runs"))["runs"]] == ["CANCELLED"]


async def test_missing_repository_fails_the_run_with_a_report(launch: Any, tmp_path: Path) -> None:
    async with launch() as launcher:
        run_id = await launcher.start(github_repo_url=str(tmp_path / "repositories" / "gone"))
        await launcher.until(run_id, "FAILED")
        report = await launcher.call("get_artifact", run_id=run_id, artifact_name="failure_summary.md")
        assert "REPO_NOT_FOUND" in report["artifact"]["content"]
        assert str(tmp_path) not in report["artifact"]["content"]
        assert (await launcher.call("resume", run_id=run_id))["error"]["code"] == "ILLEGAL_STATE"


async def test_pages_outside_the_allowed_paths_fail_the_run(launch: Any) -> None:
    async with launch() as launcher:
        run_id = await launcher.start(required_sections=["docs"], allowed_paths=["content/kb.aspose.org"])
        await launcher.until(run_id, "FAILED")
        events = (await launcher.call("get_run_telemetry", run_id=run_id))["events"]
        failed = [event["payload"]["error"]["code"] for event in events if event["type"] == "WORK_ITEM_FAILED"]
        assert failed == ["ALLOWED_PATHS_VIOLATION"]
        assert not list((launcher.folder(run_id) / "work/site/content/docs.aspose.org").rglob("3d/**/*.md"))
