"""The pages that come from the code say what the code says; the site holds together and fetches nothing."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repo.documents import ROOT


def maker(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / f"make_{name}.py"))


COMMANDS = maker("commands")
TABLES = maker("tables")
EVERY: list[tuple[str, Any]] = list(COMMANDS["every"]())


def test_the_page_of_commands_is_what_the_command_says() -> None:
    assert COMMANDS["PAGE"].read_text("utf-8") == COMMANDS["page"](), "run make docs"


@pytest.mark.parametrize(("name", "command"), EVERY, ids=[name for name, _ in EVERY])
def test_every_command_and_option_has_its_words(name: str, command: Any) -> None:
    assert command.help
    assert [each.name for each in COMMANDS["parameters"](command) if each.name != "help" and not each.help] == []


def test_the_tables_are_what_the_code_says() -> None:
    for path, text in TABLES["pages"]().items():
        assert path.read_text("utf-8") == text, "run make docs"


def test_every_threat_has_a_row_and_every_test_of_a_threat_has_its_row() -> None:
    assert sorted(TABLES["THREATS"]) == list(range(1, 41))
    assert set(TABLES["tests_by_threat"]()) <= set(TABLES["THREATS"])


def test_the_contents_for_programs_are_the_contents_of_the_site() -> None:
    made = maker("llms")
    assert made["FILE"].read_text("utf-8") == made["text"](), "run make docs"


def test_every_page_is_in_the_contents() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    listed = {file for part in nav for pages in part.values() for page in pages for file in page.values()}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= listed


def test_the_site_is_built_without_a_lost_link_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    ended = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 25
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\bhref=\"(?:https?:)?//"
    )
    assert [page.name for page in pages if loads.search(page.read_text("utf-8"))] == []
    # The words, not only the frame: links to code are words, links to pages are links.
    text = (tmp_path / "backends.html").read_text("utf-8")
    assert 'href="overview.html#a-backend-in-one-file"' in text
    assert "../gateway/" not in text


def test_every_page_is_linked_from_the_first() -> None:
    first = (ROOT / "docs" / "index.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([a-z-]+\.md)", first))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} == linked
