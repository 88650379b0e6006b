"""Generated pages are up to date; the site builds without broken links and loads nothing from other hosts."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.repo.documents import ROOT


def generator(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / f"make_{name}.py"))


COMMANDS = generator("commands")
TABLES = generator("tables")
REFERENCE = generator("reference")
EVERY_COMMAND: list[tuple[str, Any]] = list(COMMANDS["every"]())


def test_commands_page_is_up_to_date() -> None:
    assert COMMANDS["PAGE"].read_text("utf-8") == COMMANDS["page"](), "run make docs"


@pytest.mark.parametrize(("name", "command"), EVERY_COMMAND, ids=[name for name, _ in EVERY_COMMAND])
def test_every_command_and_option_has_a_help_text(name: str, command: Any) -> None:
    assert command.help
    assert [each.name for each in COMMANDS["parameters"](command) if each.name != "help" and not each.help] == []


def test_generated_tables_are_up_to_date() -> None:
    for path, text in TABLES["pages"]().items():
        assert path.read_text("utf-8") == text, "run make docs"


def test_generated_reference_pages_are_up_to_date() -> None:
    for path, text in REFERENCE["pages"]().items():
        assert path.read_text("utf-8") == text, "run make docs"


async def test_metrics_page_lists_every_metric_and_label_that_a_gateway_exposes(start: Any) -> None:
    documented = {family.prometheus_name: family for family in REFERENCE["metric_families"]()}
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        await gateway.call("core_ping")
        families = gateway.app.telemetry.families()
    assert {family.prometheus_name for family in families} <= set(documented)
    for family in families:
        labels = {name for point in family.points for name, _ in point}
        stated = REFERENCE["LABELS"].get(family.name, "")
        assert "conventions" in stated or labels <= set(stated.split(", ")), family.name


async def test_api_page_lists_every_route_that_a_gateway_serves(start: Any) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        key = await gateway.new_key(scopes=frozenset({"mcp:admin"}))
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}) as client:
            answer = await client.get(f"{gateway.base}/api/v1/openapi.json")
    assert sorted(answer.json()["paths"]) == sorted(REFERENCE["api_paths"]())


def test_every_threat_and_every_threat_test_has_a_table_row() -> None:
    assert list(TABLES["THREATS"])[:41] == list(range(1, 42))
    assert list(TABLES["THREATS"]) == sorted(TABLES["THREATS"])
    assert set(TABLES["tests_by_threat"]()) <= set(TABLES["THREATS"])


def test_llms_txt_is_up_to_date() -> None:
    llms = generator("llms")
    assert llms["FILE"].read_text("utf-8") == llms["text"](), "run make docs"


def test_navigation_lists_every_page() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    listed = {file for part in nav for pages in part.values() for page in pages for file in page.values()}
    docs = ROOT / "docs"
    assert {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} <= listed


def test_site_builds_without_broken_links_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    ended = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 25
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\bhref=\"(?:https?:)?//"
    )
    assert [page.name for page in pages if loads.search(page.read_text("utf-8"))] == []
    # Links between pages are kept; links to code become plain text.
    text = (tmp_path / "backends.html").read_text("utf-8")
    assert 'href="overview.html#a-backend-in-one-file"' in text
    assert "../gateway/" not in text
    assert "../deploy/" not in (tmp_path / "alerting.html").read_text("utf-8")
    record = (tmp_path / "adr" / "0007-error-model.html").read_text("utf-8")
    assert 'href="../errors.html#the-kinds"' in record


def test_home_page_links_to_every_page() -> None:
    home = (ROOT / "docs" / "index.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([a-z-]+\.md)", home))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} == linked
