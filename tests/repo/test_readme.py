"""The documents work as written: their commands are run, the README's files used, their outputs compared."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.peers import npm
from tests.repo.documents import README, ROOT, Block, blocks, documents, marked, shown

Gateways = Callable[[str], Any]


def marked_so(mark: str) -> list[Any]:
    """Each such block of every document, with its document; a walk-through with a gateway of its own is not ours."""
    ours = [document for document in documents() if document.name != "godot.md"]
    found = ((document, block) for document in ours for block in blocks(document, mark))
    return [pytest.param(document, block, id=f"{shown(document)}:{block.name}") for document, block in found]


_CHANGING = (
    (r"[0-9a-f]{8}-\d{8}T\d{6}\.\d+Z-\d+", "RUN"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "TIME"),
    (r"\b[0-9a-f]{16}\b", "ID"),
    (r"\b01[0-9A-Z]{24}\b", "ULID"),
    (r"http://127\.0\.0\.1:\d+", "ADDRESS"),
    (r" +$", ""),
)


def settled(text: str) -> str:
    """Without what differs from call to call."""
    for pattern, name in _CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text.strip()


def test_make_run_starts_what_these_tests_start() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\nrun:")[2].splitlines()[1]
    assert recipe.strip() == "@$(VENV)/bin/gatehouse serve"


@pytest.mark.parametrize(("document", "block"), marked_so("tested"))
def test_a_block_marked_as_tested_runs_and_says_what_stands_below_it(
    document: Path, block: Block, gateways: Gateways
) -> None:
    says_what_stands_below(document, block, gateways(block.name).run(block.text))


@pytest.mark.parametrize(("document", "block"), marked_so("fresh"))
def test_a_block_marked_as_fresh_runs_in_an_empty_folder_and_says_what_stands_below_it(
    document: Path, block: Block, terminal: Callable[[Path], Any], tmp_path: Path
) -> None:
    says_what_stands_below(document, block, terminal(tmp_path).run(block.text))


def says_what_stands_below(document: Path, block: Block, ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.returncode == block.exit
    for expected in blocks(document, "output"):
        if expected.name == block.name:
            assert settled(ended.stdout) == settled(expected.text)


def test_every_output_in_a_document_belongs_to_a_block_that_is_run() -> None:
    for document in documents():
        run = {block.name for mark in ("tested", "fresh") for block in blocks(document, mark)}
        assert {block.name for block in blocks(document, "output")} <= run, document


def test_a_key_made_while_the_gateway_runs_is_good_at_once_and_refused_once_revoked(gateways: Gateways) -> None:
    served = gateways("make run")
    made = json.loads(served.run("gatehouse key create --subject carol --json").stdout)
    asking = f"GATEHOUSE_TOKEN={made['key']} gatehouse call core_ping"
    assert served.run(asking).returncode == 0
    assert served.run(f"gatehouse key revoke {made['id']}").returncode == 0
    eventually(lambda: served.run(asking).returncode == 3)


def test_the_namespace_of_the_one_file_backend_has_an_address_with_bare_names(gateways: Gateways) -> None:
    served = gateways("words")
    assert names(served, "/mcp/words") == ["count"]
    assert names(served, "/mcp") == ["words_count"]
    for name in ("count", "words_count", "words.count"):
        ended = served.run(f"""gatehouse call {name} '{{"text": "a b"}}' --url {served.base}/mcp/words""")
        assert ended.stdout == "2\n"


def test_the_virtual_server_is_there_within_a_moment_of_saving_the_file(gateways: Gateways) -> None:
    served = gateways("words")
    with saved(served, marked(README, "file", "virtual.yaml").text):
        eventually(lambda: names(served, "/mcp/desk") == ["core.ping", "words.count"])
    eventually(lambda: names(served, "/mcp") == ["words_count"])


def test_the_remote_server_of_the_readme_is_served_under_its_namespace(gateways: Gateways) -> None:
    served, remote = gateways("words"), gateways("make run")
    # As written, but for the address and the token of a server that there is.
    text = marked(README, "file", "remote.yaml").text.partition("  files:")[0]
    text = text.replace("https://mcp.example.org", remote.base)
    text = text.replace("${TRACKER_TOKEN}", remote.terminal.environment["GATEHOUSE_TOKEN"])
    with saved(served, f"{text}    allow_private: true\n"):
        eventually(lambda: "tracker_core_ping" in names(served, "/mcp"))
        ended = served.run("gatehouse call tracker_core_ping --json")
        assert json.loads(ended.stdout)["structuredContent"]["output"]["ok"] is True


@pytest.mark.parametrize("program", ["cursor", "vscode"])
def test_a_client_s_file_is_json_with_the_address(program: str) -> None:
    shown = [json.loads(block.text) for block in blocks(README) if block.language == "json" and not block.mark]
    entries = {"cursor": shown[0]["mcpServers"], "vscode": shown[1]["servers"]}[program]
    assert entries["gatehouse"]["url"] == "http://127.0.0.1:8080/mcp"
    # Clients sign in by themselves; who has a key instead is told where it goes.
    assert '"headers": {"Authorization": "Bearer gth_..."}' in README.read_text("utf-8")


@pytest.mark.parametrize("language", ["py", "mjs"])
def test_a_program_of_ones_own_calls_a_tool_in_both_eras(language: str, gateways: Gateways, tmp_path: Path) -> None:
    page = ROOT / "docs" / "clients.md"
    (tmp_path / f"client.{language}").write_text(marked(page, "file", f"client.{language}").text, "utf-8")
    lines = marked(page, "shell", f"client-{language}").text
    if language == "mjs":
        # What the tests have fetched already stands in for the network.
        lines = lines.replace(f"npm install {npm.CLIENT[0]}\n", "")
        (tmp_path / "node_modules").symlink_to(npm.install_package(npm.CLIENT) / "node_modules")
    ended = replace(gateways("make run").terminal, folder=tmp_path).run(lines)
    assert ended.stdout == marked(page, "says", f"client-{language}").text


@contextmanager
def saved(served: Any, text: str) -> Iterator[None]:
    """The gateway's settings file with this in it, while the block runs."""
    file: Path = served.terminal.folder / "gatehouse.yaml"
    before = file.read_text("utf-8")
    file.write_text(text, "utf-8")
    try:
        yield
    finally:
        file.write_text(before, "utf-8")


def names(served: Any, path: str) -> list[str]:
    ended: subprocess.CompletedProcess[str] = served.run(f"gatehouse tools --json --url {served.base}{path} || true")
    return sorted(tool["name"] for tool in json.loads(ended.stdout or "[]"))


def eventually(fact: Callable[[], bool]) -> None:
    """Each look is a command of its own, which is pause enough."""
    until = time.monotonic() + 10
    while not fact():
        assert time.monotonic() < until
