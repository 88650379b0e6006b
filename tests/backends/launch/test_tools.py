"""Behaviour of the tools beyond the contract: failures, serialization per run, progress and resources."""

import asyncio
import itertools
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.launch import sample
from backends.launch.states import State, can_move
from tests.conftest import HANDSHAKE, MODERN

Json = dict[str, Any]


def _moves(run: Path) -> list[Json]:
    events = [json.loads(line) for line in (run / "events.ndjson").read_bytes().splitlines()]
    return [event["payload"] for event in events if event["type"] == "RUN_STATE_CHANGED"]


async def test_run_with_a_missing_program_is_paused_and_can_be_resumed(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with launch() as launcher:
        with monkeypatch.context() as patched:
            patched.setenv("PATH", "/nonexistent")
            run_id = await launcher.start(required_sections=["docs"])
            refused = await launcher.call("resume", run_id=run_id)
        assert refused["error"]["code"] == "TOOLCHAIN_MISSING"
        assert refused["error"]["details"]["tool"] == "git"
        assert refused["error"]["retryable"] is False
        assert (await launcher.call("get_status", run_id=run_id))["status"]["state"] == "CREATED"
        resumed = await launcher.call("resume", run_id=run_id)
        assert resumed["status"]["state"] == "PLAN_READY"


async def test_work_item_that_times_out_is_stopped_and_is_retryable(launch: Any) -> None:
    async with launch(work_seconds=0.02) as launcher:
        run_id = await launcher.start(required_sections=["docs"])
        refused = await launcher.call("resume", run_id=run_id)
        assert (refused["error"]["code"], refused["error"]["retryable"]) == ("TOOL_TIMEOUT", True)
        assert launcher.state(run_id) == "CREATED"


async def test_run_is_paused_when_its_credential_is_revoked(launch: Any) -> None:
    async with launch() as launcher, launcher.as_(await launcher.gateway.new_key(subject="bob")) as bob:
        run_id = await bob.start(required_sections=["docs"])
        await launcher.gateway.app.keys.revoke(bob.gateway.key.split("_")[1])
        journal = launcher.folder(run_id) / "events.ndjson"
        while b"RUN_PAUSED" not in journal.read_bytes():
            await launcher.pause()
        assert (await launcher.call("get_status", run_id=run_id))["status"]["state"] != "READY_FOR_PR"
        await launcher.call("resume", run_id=run_id)
        await launcher.until(run_id, "READY_FOR_PR")
        waiting = asyncio.create_task(launcher.call("validate", run_id=run_id))
        before = journal.read_bytes().count(b"W7.Validator")
        while journal.read_bytes().count(b"W7.Validator") == before:
            await launcher.pause()
        await launcher.call("cancel", run_id=run_id)
        assert (await waiting)["error"]["code"] == "CANCELLED"


async def test_ready_run_serves_resources_reports_progress_and_publishes_only_validated_pages(launch: Any) -> None:
    messages: list[str] = []

    async def record_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(str(message))

    async with launch() as launcher:
        run_id = await launcher.ready(required_sections=["docs"])
        for era in (MODERN, HANDSHAKE):
            async with launcher.gateway.client(era) as client:
                templates = (await client.list_resource_templates()).resource_templates
                assert "resource://run/{run_id}/page_plan.json" in {each.uri_template for each in templates}
                read = await client.read_resource(f"resource://run/{run_id}/page_plan.json")
                assert json.loads(read.contents[0].text)["product_slug"] == "3d"
                messages.clear()
                await client.call_tool("launch_validate", {"run_id": run_id}, progress_callback=record_progress)
                assert messages == ["VALIDATED"]
        unknown = (
            await launcher.gateway.post("resources/read", {"uri": f"resource://run/{run_id}/nothing.json"})
        ).json()
        assert unknown["error"]["data"]["uri"].endswith("nothing.json")
        # Two concurrent calls are serialized; both succeed.
        answers = await asyncio.gather(*(launcher.call("validate", run_id=run_id) for _ in range(2)))
        assert all(answer["validation_report"]["ok"] for answer in answers)
        subprocess.run(["git", "branch", f"launch/{run_id}/3d"], cwd=launcher.repositories.site, check=True)
        refused = await launcher.call("open_pr", run_id=run_id)
        assert (refused["error"]["code"], refused["error"]["retryable"]) == ("COMMIT_SERVICE_ERROR", False)
        assert launcher.state(run_id) == "READY_FOR_PR"
        page = launcher.page(run_id, "python/features.md")
        page.write_text(page.read_text() + "\nA word more.\n")
        refused = await launcher.call("open_pr", run_id=run_id)
        assert refused["error"]["code"] == "ILLEGAL_STATE"
        assert "validate" in refused["error"]["suggested_fix"]
        plan = launcher.folder(run_id) / "artifacts" / "page_plan.json"
        plan.write_text("[]")
        failed = await launcher.call("validate", run_id=run_id)
        assert failed["error"]["code"] == "INTERNAL"
        assert failed["error"]["details"]["cause_class"] == "TypeError"
        assert failed["error"]["retryable"] is False
        assert str(page) not in json.dumps(failed)


async def test_number_of_concurrent_runs_is_limited(launch: Any, tmp_path: Path) -> None:
    async with launch(children=1) as launcher:
        runs = [await launcher.start(github_repo_url=str(tmp_path / "gone")) for _ in range(4)]
        for run_id in runs:
            await launcher.until(run_id, "FAILED")
        spans: list[tuple[str, str]] = []
        for run_id in runs:
            events = (await launcher.call("get_run_telemetry", run_id=run_id))["events"]
            at = {event["type"]: event["ts"] for event in events}
            spans.append((at["WORK_ITEM_STARTED"], at["WORK_ITEM_FAILED"]))
        ordered = sorted(spans)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ordered))


async def test_run_without_a_known_repair_fails_with_fix_exhausted(launch: Any) -> None:
    async with launch() as launcher:
        run_id = await launcher.ready(required_sections=["docs"])
        (launcher.folder(run_id) / "work/site/hugo.toml").unlink()
        report = (await launcher.call("validate", run_id=run_id))["validation_report"]
        assert {gate["name"] for gate in report["gates"] if not gate["ok"]} >= {"hugo_config", "hugo_build"}
        refused = await launcher.call("fix_next", run_id=run_id)
        assert (refused["error"]["code"], refused["error"]["details"]["reason"]) == ("FIX_EXHAUSTED", "no_repair")
        assert (await launcher.call("get_status", run_id=run_id))["status"]["state"] == "FAILED"


async def test_random_calls_over_many_runs_make_only_allowed_transitions(launch: Any, tmp_path: Path) -> None:
    rng = random.Random(11)
    async with launch() as launcher:
        runs = [await launcher.start(required_sections=["docs"], github_repo_url=url) for url in _sources(tmp_path)]
        tools = ("get_status", "validate", "fix_next", "resume", "cancel", "open_pr", "get_run_telemetry")
        weights = (6, 3, 3, 2, 1, 1, 2)
        for _ in range(60):
            tool, run_id = rng.choices(tools, weights)[0], rng.choice(runs)
            before = launcher.state(run_id)
            answer = await launcher.call(tool, run_id=run_id)
            if not answer["ok"]:
                assert answer["error"]["code"] in ("ILLEGAL_STATE", "CANCELLED", "REPO_NOT_FOUND"), answer
            if not answer["ok"] and answer["error"]["code"] == "ILLEGAL_STATE" and before in ("DONE", "CANCELLED"):
                assert answer["error"]["details"]["current_state"] == before
        for run_id in runs:
            for move in _moves(launcher.folder(run_id)):
                assert can_move(State(move["old_state"]), State(move["new_state"]), rewind="reason" in move), move


def _sources(folder: Path) -> list[str]:
    return [sample.PRODUCT_URL, str(folder / "gone"), "https://github.com/no/body", sample.PRODUCT_URL]


async def test_start_is_rejected_at_the_limit_of_open_runs_until_one_ends(launch: Any) -> None:
    async with launch(max_open_runs=2, children=1) as launcher:
        first, second = [await launcher.start(required_sections=["docs"]) for _ in range(2)]
        config = launcher.repositories.config(required_sections=["docs"])
        refused = (await launcher.call("start_run", run_config=config))["error"]
        assert (refused["kind"], refused["message"]) == (
            "rate_limited",
            "The tenant has 2 unfinished runs; the limit is 2.",
        )
        assert sorted(each.name for each in launcher.folder(first).parent.iterdir()) == sorted([first, second])
        await launcher.call("cancel", run_id=first)
        assert (await launcher.call("start_run", run_config=config))["ok"]
