"""What tools do beyond their contract's words: refuse well, wait their turn, show progress, serve resources."""

import asyncio
import itertools
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.launch import sample
from backends.launch.states import State, may_move
from tests.conftest import HANDSHAKE, MODERN

Json = dict[str, Any]


def _moves(run: Path) -> list[Json]:
    events = [json.loads(line) for line in (run / "events.ndjson").read_bytes().splitlines()]
    return [event["payload"] for event in events if event["type"] == "RUN_STATE_CHANGED"]


async def test_a_missing_program_holds_a_run_until_it_is_there(launch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with launch() as launching:
        with monkeypatch.context() as without:
            without.setenv("PATH", "/nonexistent")
            run_id = await launching.start(required_sections=["docs"])
            refused = await launching.call("resume", run_id=run_id)
        assert refused["error"]["code"] == "TOOLCHAIN_MISSING"
        assert refused["error"]["details"]["tool"] == "git"
        assert refused["error"]["retryable"] is False
        assert (await launching.call("get_status", run_id=run_id))["status"]["state"] == "CREATED"
        resumed = await launching.call("resume", run_id=run_id)
        assert resumed["status"]["state"] == "PLAN_READY"


async def test_work_that_takes_too_long_is_stopped_and_may_be_tried_again(launch: Any) -> None:
    async with launch(work_seconds=0.02) as launching:
        run_id = await launching.start(required_sections=["docs"])
        refused = await launching.call("resume", run_id=run_id)
        assert (refused["error"]["code"], refused["error"]["retryable"]) == ("TOOL_TIMEOUT", True)
        assert launching.state(run_id) == "CREATED"


async def test_work_stops_when_the_credential_it_goes_on_with_is_revoked(launch: Any) -> None:
    async with launch() as launching, launching.as_(await launching.gateway.new_key(subject="bob")) as bob:
        run_id = await bob.start(required_sections=["docs"])
        await launching.gateway.house.keys.revoke(bob.gateway.key.split("_")[1])
        journal = launching.folder(run_id) / "events.ndjson"
        while b"RUN_PAUSED" not in journal.read_bytes():
            await launching.moved()
        assert (await launching.call("get_status", run_id=run_id))["status"]["state"] != "READY_FOR_PR"
        await launching.call("resume", run_id=run_id)
        await launching.until(run_id, "READY_FOR_PR")
        waiting = asyncio.create_task(launching.call("validate", run_id=run_id))
        before = journal.read_bytes().count(b"W7.Validator")
        while journal.read_bytes().count(b"W7.Validator") == before:
            await launching.moved()
        await launching.call("cancel", run_id=run_id)
        assert (await waiting)["error"]["code"] == "CANCELLED"


async def test_a_ready_run_serves_resources_shows_progress_and_takes_only_validated_pages(launch: Any) -> None:
    heard: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(str(message))

    async with launch() as launching:
        run_id = await launching.ready(required_sections=["docs"])
        for era in (MODERN, HANDSHAKE):
            async with launching.gateway.client(era) as client:
                templates = (await client.list_resource_templates()).resource_templates
                assert "resource://run/{run_id}/page_plan.json" in {each.uri_template for each in templates}
                read = await client.read_resource(f"resource://run/{run_id}/page_plan.json")
                assert json.loads(read.contents[0].text)["product_slug"] == "3d"
                heard.clear()
                await client.call_tool("launch_validate", {"run_id": run_id}, progress_callback=hear)
                assert heard == ["VALIDATED"]
        unknown = (
            await launching.gateway.post("resources/read", {"uri": f"resource://run/{run_id}/nothing.json"})
        ).json()
        assert unknown["error"]["data"]["uri"].endswith("nothing.json")
        # Two at once wait for each other; both answer.
        answers = await asyncio.gather(*(launching.call("validate", run_id=run_id) for _ in range(2)))
        assert all(answer["validation_report"]["ok"] for answer in answers)
        subprocess.run(["git", "branch", f"launch/{run_id}/3d"], cwd=launching.place.site, check=True)
        refused = await launching.call("open_pr", run_id=run_id)
        assert (refused["error"]["code"], refused["error"]["retryable"]) == ("COMMIT_SERVICE_ERROR", False)
        assert launching.state(run_id) == "READY_FOR_PR"
        page = launching.page(run_id, "python/features.md")
        page.write_text(page.read_text() + "\nA word more.\n")
        refused = await launching.call("open_pr", run_id=run_id)
        assert refused["error"]["code"] == "ILLEGAL_STATE"
        assert "validate" in refused["error"]["suggested_fix"]
        plan = launching.folder(run_id) / "artifacts" / "page_plan.json"
        plan.write_text("[]")
        failed = await launching.call("validate", run_id=run_id)
        assert failed["error"]["code"] == "INTERNAL"
        assert failed["error"]["details"]["cause_class"] == "TypeError"
        assert failed["error"]["retryable"] is False
        assert str(page) not in json.dumps(failed)


async def test_no_more_runs_are_worked_on_at_once_than_there_are_places(launch: Any, tmp_path: Path) -> None:
    async with launch(children=1) as launching:
        runs = [await launching.start(github_repo_url=str(tmp_path / "gone")) for _ in range(4)]
        for run_id in runs:
            await launching.until(run_id, "FAILED")
        spans: list[tuple[str, str]] = []
        for run_id in runs:
            events = (await launching.call("get_run_telemetry", run_id=run_id))["events"]
            at = {event["type"]: event["ts"] for event in events}
            spans.append((at["WORK_ITEM_STARTED"], at["WORK_ITEM_FAILED"]))
        ordered = sorted(spans)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ordered))


async def test_an_unfixable_run_fails_and_says_so(launch: Any) -> None:
    async with launch() as launching:
        run_id = await launching.ready(required_sections=["docs"])
        (launching.folder(run_id) / "work/site/hugo.toml").unlink()
        report = (await launching.call("validate", run_id=run_id))["validation_report"]
        assert {gate["name"] for gate in report["gates"] if not gate["ok"]} >= {"hugo_config", "hugo_build"}
        refused = await launching.call("fix_next", run_id=run_id)
        assert (refused["error"]["code"], refused["error"]["details"]["reason"]) == ("FIX_EXHAUSTED", "no_repair")
        assert (await launching.call("get_status", run_id=run_id))["status"]["state"] == "FAILED"


async def test_random_calls_over_many_runs_never_make_a_move_that_the_table_does_not_have(
    launch: Any, tmp_path: Path
) -> None:
    dice = random.Random(11)
    async with launch() as launching:
        runs = [await launching.start(required_sections=["docs"], github_repo_url=url) for url in _sources(tmp_path)]
        tools = ("get_status", "validate", "fix_next", "resume", "cancel", "open_pr", "get_run_telemetry")
        weights = (6, 3, 3, 2, 1, 1, 2)
        for _ in range(60):
            tool, run_id = dice.choices(tools, weights)[0], dice.choice(runs)
            before = launching.state(run_id)
            answer = await launching.call(tool, run_id=run_id)
            if not answer["ok"]:
                assert answer["error"]["code"] in ("ILLEGAL_STATE", "CANCELLED", "REPO_NOT_FOUND"), answer
            if not answer["ok"] and answer["error"]["code"] == "ILLEGAL_STATE" and before in ("DONE", "CANCELLED"):
                assert answer["error"]["details"]["current_state"] == before
        for run_id in runs:
            for move in _moves(launching.folder(run_id)):
                assert may_move(State(move["old_state"]), State(move["new_state"]), rewind="reason" in move), move


def _sources(folder: Path) -> list[str]:
    return [sample.PRODUCT_URL, str(folder / "gone"), "https://github.com/no/body", sample.PRODUCT_URL]


async def test_a_tenant_with_as_many_runs_as_it_may_have_begins_no_other_until_one_ends(launch: Any) -> None:
    async with launch(max_open_runs=2, children=1) as launching:
        first, second = [await launching.start(required_sections=["docs"]) for _ in range(2)]
        config = launching.place.config(required_sections=["docs"])
        refused = (await launching.call("start_run", run_config=config))["error"]
        assert (refused["kind"], refused["message"]) == ("rate_limited", "2 runs have not ended, and there may be 2.")
        assert sorted(each.name for each in launching.folder(first).parent.iterdir()) == sorted([first, second])
        await launching.call("cancel", run_id=first)
        assert (await launching.call("start_run", run_config=config))["ok"]
