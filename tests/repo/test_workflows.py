"""The CI workflows call the Makefile's targets and use pinned actions only."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prerequisites import skip_or_fail
from tests.repo.documents import ROOT, relative_path

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EACH_WORKFLOW = pytest.mark.parametrize("file", FILES, ids=relative_path)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


SIGN = {"contents": "read", "id-token": "write", "attestations": "write"}
PERMISSIONS = {
    ("release", "attest"): SIGN,
    ("release", "package"): {"contents": "read", "id-token": "write"},
    ("release", "image"): SIGN,
    ("release", "page"): {"contents": "write"},
}
"""Jobs that may do more than read the repository; they run on tags alone."""


def workflow(file: Path) -> dict[Any, Any]:
    return yaml.safe_load(file.read_text("utf-8"))


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(file)["jobs"].values() for step in job["steps"]]


@EACH_WORKFLOW
def test_threat_40_every_action_is_pinned_by_its_full_hash(file: Path) -> None:
    lines = [line for line in file.read_text("utf-8").splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@EACH_WORKFLOW
def test_threat_40_jobs_have_minimal_permissions(file: Path) -> None:
    definition = workflow(file)
    assert definition["permissions"] == {}
    # YAML reads the key `on` as True.
    assert "pull_request_target" not in definition[True]
    for name, job in definition["jobs"].items():
        assert job["permissions"] == PERMISSIONS.get((file.stem, name), {"contents": "read"}), name
        assert "timeout-minutes" in job, name
        assert job["runs-on"].startswith("${{ vars."), name
    for step in steps(file):
        # Text that others can write, such as the title of a pull request, must not become part of a command.
        assert "${{" not in step.get("run", "")
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_release_workflow_runs_on_version_tags_only() -> None:
    assert workflow(ROOT / ".github" / "workflows" / "release.yml")[True] == {"push": {"tags": ["v*"]}}
    others = [file for file in FILES if file.stem != "release"]
    assert others
    for file in others:
        assert "tags" not in (workflow(file)[True].get("push") or {}), file.name


def test_actionlint_finds_nothing() -> None:
    program = shutil.which("actionlint")
    if program is None:
        skip_or_fail("actionlint is not installed")
    done = subprocess.run([program, *map(str, FILES)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_workflows_call_only_existing_make_targets() -> None:
    named = {
        target
        for file in FILES
        for step in steps(file)
        for target in re.findall(r"(?:^|\s)make ([a-z-]+)", step.get("run", ""))
    }
    # `make coverage` is `make test` with line coverage.
    assert {"check", "coverage", "conformance", "chart-test", "image", "lowest", "release-files"} <= named
    assert named <= TARGETS


def test_pre_commit_hooks_are_part_of_make_check() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    for hook in (hook for repo in config["repos"] for hook in repo["hooks"]):
        program = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert f"$(VENV)/bin/{program} " in recipe, hook["id"]
