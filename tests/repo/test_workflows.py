"""The workflows of the public repository do what the Makefile does, with code that cannot change under them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repo.documents import ROOT, shown

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EVERY = pytest.mark.parametrize("file", FILES, ids=shown)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def workflow(file: Path) -> dict[Any, Any]:
    return yaml.safe_load(file.read_text("utf-8"))


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(file)["jobs"].values() for step in job["steps"]]


@EVERY
def test_threat_40_every_action_is_pinned_by_its_full_hash(file: Path) -> None:
    lines = [line for line in file.read_text("utf-8").splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@EVERY
def test_threat_40_no_job_may_do_more_than_it_must(file: Path) -> None:
    told = workflow(file)
    assert told["permissions"] == {}
    # YAML reads the key `on` as a truth value.
    assert "pull_request_target" not in told[True]
    for name, job in told["jobs"].items():
        assert job["permissions"] == {"contents": "read"}, name
        assert "timeout-minutes" in job, name
        assert job["runs-on"].startswith("${{ vars."), name
    for step in steps(file):
        # What others can write, such as the title of a request, never becomes a part of a command.
        assert "${{" not in step.get("run", "")
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_only_make_targets_that_exist_are_called() -> None:
    named = {
        target
        for file in FILES
        for step in steps(file)
        for target in re.findall(r"(?:^|\s)make ([a-z-]+)", step.get("run", ""))
    }
    assert {"check", "test", "conformance", "chart-test", "image"} <= named
    assert named <= TARGETS


def test_what_is_looked_at_before_a_commit_is_what_make_check_looks_at() -> None:
    told = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    for hook in (hook for repo in told["repos"] for hook in repo["hooks"]):
        program = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert f"$(VENV)/bin/{program} " in recipe, hook["id"]
