"""Runs that stop: a cause that may pass is a blocker, a failure says why, a repair that does harm is undone."""

from pathlib import Path
from typing import Any

import pytest

from backends.launch import sample
from backends.launch.gates.context import GateContext
from backends.launch.gates.runner import GATES, run_gate
from backends.launch.workers import fix
from tests.backends.launch.worker_fixtures import copy_run, run_worker, run_workers

FEATURES = "docs.aspose.org/3d/en/python/features.md"
STARTED = "docs.aspose.org/3d/en/python/getting-started.md"


async def test_missing_toolchain_is_a_blocker_that_resume_passes(launch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with launch() as launcher:
        with monkeypatch.context() as patched:
            patched.setenv("PATH", "/nonexistent")
            run_id = await launcher.start(required_sections=["docs"])
            refused = await launcher.call("resume", run_id=run_id)
            assert refused["error"]["code"] == "TOOLCHAIN_MISSING"
        status = (await launcher.call("get_status", run_id=run_id))["status"]
        assert status["state"] == "CREATED"
        assert [(each["severity"], each["gate"]) for each in status["open_issues"]] == [("blocker", "W1.RepoScout")]
        await launcher.call("resume", run_id=run_id)
        status = await launcher.until(run_id, "READY_FOR_PR")
        assert status["open_issues"] == []


async def test_failed_run_says_why_and_its_key_returns_it(launch: Any, tmp_path: Path) -> None:
    async with launch() as launcher:
        config = launcher.repositories.config(github_repo_url=str(tmp_path / "nowhere"))
        started = await launcher.call("start_run", run_config=config, idempotency_key="once")
        run_id = started["run_id"]
        status = await launcher.until(run_id, "FAILED")
        assert [each["gate"] for each in status["open_issues"]] == ["W1.RepoScout"]
        assert "There is no such repository." in status["open_issues"][0]["title"]
        assert "failure_summary.md" in [each["name"] for each in status["artifacts"]]
        artifact = await launcher.call("get_artifact", run_id=run_id, artifact_name="failure_summary.md")
        summary = artifact["artifact"]["content"]
        assert f"{run_id}:W1.RepoScout:1:run" in summary
        assert "There is no such repository." in summary
        again = await launcher.call("start_run", run_config=config, idempotency_key="once")
        assert (again["run_id"], again["state"]) == (run_id, "FAILED")
        refused = await launcher.call("resume", run_id=run_id)
        assert refused["error"]["code"] == "ILLEGAL_STATE"
        assert "new idempotency_key" in str(refused["error"])
        events = (await launcher.call("get_run_telemetry", run_id=run_id))["events"]
        failed = next(event for event in events if event["type"] == "RUN_FAILED")
        assert failed["payload"]["code"] == "REPO_NOT_FOUND"


async def test_lint_that_no_attempt_is_left_for_does_not_fail_the_run(launch: Any) -> None:
    async with launch() as launcher:
        run_id = await launcher.ready(required_sections=["docs"], max_fix_attempts=1)
        for ending, heading in ((FEATURES, "## Features\n"), (STARTED, "## Installation\n")):
            page = launcher.page(run_id, ending)
            page.write_text(page.read_text().replace(heading, f"{heading}\n\n"))
        await launcher.call("validate", run_id=run_id)
        assert (await launcher.call("fix_next", run_id=run_id))["remaining_blockers"] > 0
        refused = await launcher.call("fix_next", run_id=run_id)
        assert (refused["error"]["code"], refused["error"]["retryable"]) == ("FIX_EXHAUSTED", True)
        assert launcher.state(run_id) == "VALIDATING"
        await launcher.call("resume", run_id=run_id)
        assert (await launcher.call("fix_next", run_id=run_id))["validation_report"]["ok"]
        assert launcher.state(run_id) == "READY_FOR_PR"


async def test_untranslated_or_unknown_locale_is_refused_at_the_start(launch: Any) -> None:
    async with launch() as launcher:
        for locale in ("de", "tlh"):
            config = launcher.repositories.config(locales=[locale])
            refused = await launcher.call("start_run", run_config=config)
            assert refused["error"]["code"] == "INVALID_INPUT"
            assert refused["error"]["details"]["locales"] == [locale]
        assert (await launcher.call("list_runs"))["runs"] == []


async def test_repository_with_nothing_to_document_is_refused_with_a_reason(launch: Any, repositories: Any) -> None:
    sample.create_repository(repositories.root / "a" / "Aspose.3D-for-Python", {"data.txt": "1 2 3\n"})
    async with launch() as launcher:
        run_id = await launcher.start(github_repo_url="https://github.com/a/Aspose.3D-for-Python", github_ref="0" * 40)
        status = await launcher.until(run_id, "FAILED")
        assert "nothing to document" in status["open_issues"][0]["title"]


def test_repair_is_reverted_and_the_next_strategy_is_used(tmp_path: Path) -> None:
    linked = run_workers(tmp_path, required_sections=["docs"])
    context = copy_run(linked, tmp_path / "copy", allow_manual_edits=True)
    page = context.site / "content" / FEATURES
    draft = page.read_text()
    # The specific repair removes the link only; the next strategy, the draft, also restores the heading.
    broken = draft.replace("\n## See", "- [Nowhere](/not/there/)\n\n## See").replace("## Limitations", "## Limits")
    page.write_text(broken)
    links = next(gate for gate in GATES if gate.name == "links")
    (context.folder / "work/public").mkdir(exist_ok=True)
    issue = next(
        each.as_issue("links") for each in run_gate(links, GateContext(context), 60) if "/not/there/" in each.message
    )
    report = {"schema_version": "1.0", "ok": False, "profile": "local", "gates": [{"name": "links", "ok": False}]}
    context.write("validation_report.json", {**report, "issues": [issue]})
    patch_id = run_worker(context, "fix").result["applied_patch_ids"][0]
    assert "/not/there/" not in page.read_text()
    revert = type(context)(context.run_id, context.folder, context.config, context.limits, "revert")
    revert.result["patch_id"] = patch_id
    fix.run(revert)
    assert page.read_text() == broken
    again = type(context)(context.run_id, context.folder, context.config, context.limits, "run")
    again.result["reverted"] = {issue["issue_id"]: 1}
    fix.run(again)
    assert page.read_text() == draft


def test_lint_fix_leaves_code_spans_alone(tmp_path: Path) -> None:
    context = run_workers(tmp_path, required_sections=["docs"])
    page = context.site / "content" / FEATURES
    page.write_text(page.read_text().replace("## Features\n", "## Features\n\n\nUse `*  a  *` and `__b__`.\n"))
    lint = next(gate for gate in GATES if gate.name == "lint")
    issue = run_gate(lint, GateContext(context), 60)[0].as_issue("lint")
    report = {"schema_version": "1.0", "ok": False, "profile": "local", "gates": [{"name": "lint", "ok": False}]}
    context.write("validation_report.json", {**report, "issues": [issue]})
    run_worker(context, "fix")
    text = page.read_text()
    assert "`*  a  *`" in text or "Use" not in text
