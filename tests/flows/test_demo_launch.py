"""`gatehouse demo launch`, run as a command."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from backends.launch.gates.hugo import find_binary
from tests.flows.process import ROOT, run

STATES = [
    "CREATED",
    "CLONED_INPUTS",
    "INGESTED",
    "FACTS_READY",
    "PLAN_READY",
    "DRAFTING",
    "DRAFT_READY",
    "LINKING",
    "VALIDATING",
    "READY_FOR_PR",
    *("VALIDATING", "FIXING", "VALIDATING", "READY_FOR_PR"),  # a page is broken manually and fixed
    "PR_OPENED",
    "DONE",
]


@pytest.fixture(scope="module")
def demo_output(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The output lines of the demo, and the folder that it keeps."""
    folder = tmp_path_factory.mktemp("demo")
    completed = run(folder, "demo", "launch", "--folder", "kept")
    assert (completed.returncode, completed.stderr) == (0, "")
    return completed.stdout.splitlines(), folder / "kept"


def test_demo_prints_each_state_and_the_fixed_issue_concisely(demo_output: tuple[list[str], Path]) -> None:
    lines, demo_folder = demo_output
    assert lines[0] == "Launch: a small product's repository becomes documentation pages and a pull request."
    assert lines[-1] == f"Done. The files are in {demo_folder}"
    assert len(lines) < 32
    assert max(map(len, lines)) < 120
    shown = [column for line in lines for column in line.split()[2:3] if column in STATES]
    assert shown == STATES
    assert any("truthlock fails" in line for line in lines)
    assert any("fixed iss_" in line for line in lines)


def test_demo_ends_with_a_pull_request_whose_commit_builds_and_changes_only_allowed_paths(
    demo_output: tuple[list[str], Path], tmp_path: Path
) -> None:
    _, demo_folder = demo_output
    site, launch = demo_folder / "repositories" / "site", demo_folder / "data" / "files" / "default" / "launch"
    record = json.loads((launch / "commit-service" / "pull-1.json").read_bytes())
    config = yaml.safe_load((launch / "runs" / record["run_id"] / "run_config.yaml").read_bytes())
    changed = _git(site, "diff", "--name-only", "main", record["branch_name"]).split()
    assert len(changed) == 12
    assert all(path.startswith(tuple(config["allowed_paths"])) for path in changed)
    page = _build_site(site, record["branch_name"], tmp_path) / "docs.aspose.org/3d/en/python/features/index.html"
    assert "Reads OBJ" in page.read_text()
    assert "It is the fastest" not in page.read_text()


def test_demo_without_git_exits_with_a_clear_message(tmp_path: Path) -> None:
    completed = run(tmp_path, "demo", "launch", PATH="/nonexistent")
    assert (completed.returncode, completed.stderr) == (
        1,
        "gatehouse: this demo requires git; install it and try again\n",
    )


def _build_site(site: Path, branch: str, folder: Path) -> Path:
    """Clone the committed branch and build the site, which has no templates of its own, with the backend's theme."""
    clone, built = folder / "clone", folder / "built"
    theme = ["--themesDir", str(ROOT / "backends" / "launch" / "theme"), "--theme", "launch"]
    _git(folder, "clone", "--quiet", "--branch", branch, str(site), str(clone))
    subprocess.run([find_binary(), "--quiet", "--source", str(clone), "--destination", str(built), *theme], check=True)
    return built


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True, text=True).stdout
