"""Each field of a run_config takes effect, checked by its result."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from backends.launch import sample
from backends.launch.events import NewEvent, Span
from backends.launch.run import Run
from tests.backends.launch.worker_fixtures import run_workers

Json = dict[str, Any]


def _extend_product(product: Path) -> str:
    """Add the files that the settings below refer to, and return the new commit."""
    (product / "logo.bin").write_bytes(b"\x89\0\0logo")
    (product / "notes").mkdir()
    (product / "notes" / "private.md").write_text("# Not for readers\n")
    (product / "vendor").mkdir()
    (product / "vendor" / "other.py").write_text("class Foreign:\n    pass\n")
    readme = product / "README.md"
    readme.write_text(readme.read_text() + "\n## More\n\nSee the [guide](docs/guide.md) and [this](README.md#more).\n")
    sample._git(product, "add", "--all")
    sample._git(product, "commit", "--quiet", "--message", "More")
    return sample._git(product, "rev-parse", "HEAD")


def _artifact(run: Path, name: str) -> Json:
    return json.loads((run / "artifacts" / name).read_bytes())


async def test_every_supported_run_config_field_takes_effect(launch: Any, repositories: Any) -> None:
    sha = _extend_product(repositories.product)
    sample.create_repository(repositories.root / "workflows", {"build.yml": "on: push\n"})
    canonical = {"product": "https://products.example.org/3d/", "docs": "https://docs.example.org/3d/"}
    base = repositories.config()
    settings: Json = {
        "github_ref": sha,
        "ingestion": {"exclude_patterns": ["notes/*"], "record_binary_files": False},
        "repo_hints": {"preferred_source_roots": ["src"]},
        "canonical_urls": canonical,
        "workflows_repo_url": str(repositories.root / "workflows"),
        "telemetry": {**base["telemetry"], "project": "spring", "run_tags": ["nightly"]},
        "commit_service": {**base["commit_service"], "author_name": "Ada", "author_email": "ada@example.org"},
    }
    async with launch() as launcher:
        run_id = await launcher.ready(**settings)
        run = launcher.folder(run_id)
        inventory = _artifact(run, "repo_inventory.json")
        left_out = {each["path"]: each["reason"] for each in inventory["left_out"]}
        assert left_out == {"notes/private.md": "excluded", "logo.bin": "binary"}
        assert inventory["phantom_paths"] == [{"path": "docs/guide.md", "document": "README.md", "line": 38}]
        assert "Foreign" not in _artifact(run, "product_facts.json")["api_surface_summary"]["classes"]
        assert (run / "work" / "workflows" / "build.yml").is_file()

        page = launcher.page(run_id, "docs.aspose.org/3d/en/python/_index.md")
        assert f"canonical: {canonical['docs']}" in page.read_text()
        page.write_text(page.read_text().replace(canonical["docs"], "https://elsewhere.example.org/"))
        report = (await launcher.call("validate", run_id=run_id))["validation_report"]
        errors = [issue["error_code"] for issue in report["issues"] if issue["severity"] == "error"]
        assert errors == ["GATE_CONSISTENCY_CANONICAL_URL"]
        assert (await launcher.call("fix_next", run_id=run_id))["validation_report"]["ok"]

        pull = await launcher.call("open_pr", run_id=run_id)
        author = sample._git(repositories.site, "show", "--no-patch", "--format=%an <%ae>", pull["commit_sha"])
        assert author == "Ada <ada@example.org>"
        _every_work_item_has_a_record(run)


def _every_work_item_has_a_record(run: Path) -> None:
    """Check that each work item has a telemetry record with its span and the run's settings."""
    records = [json.loads(line) for line in (run / "telemetry_outbox.jsonl").read_bytes().splitlines()]
    records_by_span = {
        record["context_json"]["span_id"]: record for record in records if record["job_type"] == "worker"
    }
    events = [json.loads(line) for line in (run / "events.ndjson").read_bytes().splitlines()]
    ended = [event for event in events if event["type"] in ("WORK_ITEM_FINISHED", "WORK_ITEM_FAILED")]
    assert {event["span_id"] for event in ended} == set(records_by_span)
    for event in ended:
        record = records_by_span[event["span_id"]]
        assert (record["run_id"], record["end_time"]) == (event["run_id"], event["ts"])
        assert record["start_time"] <= record["end_time"]
        assert (record["product"], record["platform"]) == ("3d", "python")
        context = record["context_json"]
        assert (context["trace_id"], context["project"], context["run_tags"]) == (
            event["trace_id"],
            "spring",
            ["nightly"],
        )


async def test_only_the_configured_scan_directories_are_read(launch: Any) -> None:
    async with launch() as launcher:
        run_id = await launcher.start(ingestion={"scan_directories": ["src"], "detect_phantom_paths": False})
        await launcher.until(run_id, "PLAN_READY", "DRAFTING", "DRAFT_READY", "LINKING", "VALIDATING", "READY_FOR_PR")
        inventory = _artifact(launcher.folder(run_id), "repo_inventory.json")
        assert [file["path"] for file in inventory["paths"]] == ["src/aspose_3d/__init__.py"]
        assert inventory["phantom_paths"] == []


@pytest.mark.parametrize(
    ("mode", "left_out"), [("respect", ["build/made.py"]), ("strict", ["build/made.py"]), ("ignore", [])]
)
def test_gitignored_files_are_read_only_in_ignore_mode(tmp_path: Path, mode: str, left_out: list[str]) -> None:
    product, _ = sample.create_repositories(tmp_path / "repositories")
    (product / ".gitignore").write_text("build/\n*.tmp\n!kept.tmp\n")
    (product / "build").mkdir()
    (product / "build" / "made.py").write_text("class Made:\n    pass\n")
    (product / "kept.tmp").write_text("kept\n")
    sample._git(product, "add", "--all", "--force")
    sample._git(product, "commit", "--quiet", "--message", "Committed all the same")
    # The .gitignore file itself is outside the scan directories, but still applies.
    context = run_workers(
        tmp_path, ingestion={"gitignore_mode": mode, "scan_directories": ["build", "kept.tmp", "src"]}
    )
    inventory = _artifact(context.folder, "repo_inventory.json")
    outside = ("build/", "kept.tmp")
    assert [each["path"] for each in inventory["left_out"] if each["path"].startswith(outside)] == left_out
    read = {each["path"] for each in inventory["paths"]}
    assert "kept.tmp" in read
    assert ("build/made.py" in read) is (not left_out)


async def test_run_that_exceeds_its_runtime_budget_fails(
    launch: Any, repositories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with launch() as launcher:
        with monkeypatch.context() as patched:
            patched.setenv("PATH", "/nonexistent")
            run_id = await launcher.start(budgets={**repositories.config()["budgets"], "max_runtime_s": 1})
            await launcher.call("resume", run_id=run_id)
        run = Run(run_id, launcher.folder(run_id))
        item = {"work_item_id": run.snapshot()["work_items"][-1]["work_item_id"]}
        run.record([NewEvent("WORK_ITEM_STARTED", item, Span())])
        started = time.monotonic()
        while time.monotonic() - started <= 1:
            await launcher.pause()
        run.record(
            [NewEvent("WORK_ITEM_FAILED", {**item, "error": {"code": "X", "message": "", "details": {}}}, Span())]
        )
        refused = await launcher.call("resume", run_id=run_id)
        assert (refused["error"]["code"], refused["error"]["retryable"]) == ("BUDGET_EXCEEDED_RUNTIME", False)
        assert launcher.state(run_id) == "FAILED"
        assert "BUDGET_EXCEEDED_RUNTIME" in (run.folder / "reports" / "failure_summary.md").read_text()
