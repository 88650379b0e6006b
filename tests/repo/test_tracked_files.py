"""Committed files name no package registry, no image host and no folder of a particular machine."""

import os
import re
import shutil
import subprocess
from functools import cache

import pytest

from tests.repo.documents import ROOT

# Split, so that this file does not match itself.
REGISTRIES = [
    "pypi" + r"\.org",
    "pythonhosted" + r"\.org",
    "npmjs" + r"\.(org|com)",
    "yarnpkg" + r"\.com",
    "docker" + r"\.io",
    "ghcr" + r"\.io",
    "quay" + r"\.io",
    "gcr" + r"\.io",
    "artifact" + "ory",
]
PLACES = (re.escape(str(ROOT)), *("/" + folder + "/[a-z.]" for folder in ("root", "home", "Users")))
LOCAL_PATHS = [rf"(^|[^A-Za-z0-9_.{{}}/-]){place}" for place in PLACES]


@cache
def reason_to_skip() -> str | None:
    if shutil.which("git") is None:
        return "git is not installed"
    command = ["git", "-C", str(ROOT), "rev-parse", "--is-inside-work-tree"]
    return None if subprocess.run(command, capture_output=True).returncode == 0 else "this is not a clone"


@pytest.fixture(autouse=True)
def _require_a_clone() -> None:
    if reason := reason_to_skip():
        assert os.environ.get("GATEHOUSE_TESTS_NO_SKIP") != "1" or reason == "this is not a clone", reason
        pytest.skip(reason)


def git_grep(patterns: list[str], *places: str) -> list[str]:
    command = ["git", "-C", str(ROOT), "grep", "-nIE", "-e", "|".join(patterns), "--", *places]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def test_no_file_names_a_registry_or_image_host() -> None:
    assert git_grep(REGISTRIES, ".", ":!LICENSE") == []


def test_no_file_names_a_folder_of_a_particular_machine() -> None:
    # Tests contain such folders as input of an attacker or of another machine.
    assert git_grep(LOCAL_PATHS, ".", ":!tests") == []


def test_search_finds_existing_text() -> None:
    assert git_grep(["Apache"], "LICENSE")
