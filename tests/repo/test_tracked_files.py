"""What is committed works for everybody: it names no package registry or image host, and nobody's folders."""

import os
import re
import shutil
import subprocess
from functools import cache

import pytest

from tests.repo.documents import ROOT

# Written in pieces, or this file would find itself.
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
    asked = ["git", "-C", str(ROOT), "rev-parse", "--is-inside-work-tree"]
    return None if subprocess.run(asked, capture_output=True).returncode == 0 else "this is not a clone"


@pytest.fixture(autouse=True)
def _in_a_clone() -> None:
    if reason := reason_to_skip():
        assert os.environ.get("GATEHOUSE_TESTS_NO_SKIP") != "1" or reason == "this is not a clone", reason
        pytest.skip(reason)


def found(patterns: list[str], *places: str) -> list[str]:
    asked = ["git", "-C", str(ROOT), "grep", "-nIE", "-e", "|".join(patterns), "--", *places]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()


def test_no_registry_or_image_host_is_named() -> None:
    assert found(REGISTRIES, ".", ":!LICENSE") == []


def test_no_folder_of_one_machine_is_named() -> None:
    # Tests name such folders as what an attacker or another machine would say.
    assert found(LOCAL_PATHS, ".", ":!tests") == []


def test_the_search_can_find() -> None:
    assert found(["Apache"], "LICENSE")
