"""The documents work as written: runs their commands with the README's files, and compares the output."""

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
from tests.repo.documents import README, ROOT, Block, blocks, documents, find_block, relative_path

Gateways = Callable[[str], Any]


def marked_blocks(mark: str) -> list[Any]:
    """Return all blocks with this mark, each with its document. `test_godot_page.py` tests docs/godot.md."""
    tested = [document for document in documents() if document.name != "godot.md"]
    found = ((document, block) for document in tested for block in blocks(document, mark))
    return [pytest.param(document, block, id=f"{relative_path(document)}:{block.name}") for document, block in found]


_VARIABLE_PARTS = (
    (r"[0-9a-f]{8}-\d{8}T\d{6}\.\d+Z-\d+", "RUN"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "TIME"),
    (r"\b[0-9a-f]{16}\b", "ID"),
    (r"\b01[0-9A-Z]{24}\b", "ULID"),
    (r"http://127\.0\.0\.1:\d+", "ADDRESS"),
    (r"policy version [0-9a-f]{12}\b", "policy version VERSION"),
    (r" +$", ""),
)


def normalize(text: str) -> str:
    """Replace the parts that differ from call to call."""
    for pattern, name in _VARIABLE_PARTS:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text.strip()


def test_make_run_starts_the_command_that_these_tests_start() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\nrun:")[2].splitlines()[1]
    assert recipe.strip() == "@$(RUN)/bin/gatehouse serve"


@pytest.mark.parametrize(("document", "block"), marked_blocks("tested"))
def test_block_marked_as_tested_prints_the_documented_output(document: Path, block: Block, gateways: Gateways) -> None:
    assert_documented_output(document, block, gateways(block.name).run(block.text))


@pytest.mark.parametrize(("document", "block"), marked_blocks("fresh"))
def test_block_marked_as_fresh_prints_the_documented_output_in_an_empty_folder(
    document: Path, block: Block, terminal: Callable[[Path], Any], tmp_path: Path
) -> None:
    assert_documented_output(document, block, terminal(tmp_path).run(block.text))


def assert_documented_output(document: Path, block: Block, ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.returncode == block.exit
    for expected in blocks(document, "output"):
        if expected.name == block.name:
            assert normalize(ended.stdout) == normalize(expected.text)


def test_every_output_in_a_document_belongs_to_a_tested_block() -> None:
    for document in documents():
        run = {block.name for mark in ("tested", "fresh", "before", "step") for block in blocks(document, mark)}
        assert {block.name for block in blocks(document, "output")} <= run, document


def test_key_created_on_a_running_gateway_works_until_it_is_revoked(gateways: Gateways) -> None:
    served = gateways("make run")
    created = json.loads(served.run("gatehouse key create --subject carol --json").stdout)
    command = f"GATEHOUSE_TOKEN={created['key']} gatehouse call core_ping"
    assert served.run(command).returncode == 0
    assert served.run(f"gatehouse key revoke {created['id']}").returncode == 0
    eventually(lambda: served.run(command).returncode == 3)


def test_namespace_of_the_one_file_backend_has_an_endpoint_with_bare_names(gateways: Gateways) -> None:
    served = gateways("words")
    assert list_tools(served, "/mcp/words") == ["count"]
    assert list_tools(served, "/mcp") == ["words_count"]
    for name in ("count", "words_count", "words.count"):
        ended = served.run(f"""gatehouse call {name} '{{"text": "a b"}}' --url {served.base}/mcp/words""")
        assert ended.stdout == "2\n"


def test_virtual_server_is_served_after_the_settings_file_is_saved(gateways: Gateways) -> None:
    served = gateways("words")
    page = ROOT / "docs" / "virtual-servers.md"
    with settings_file(served, find_block(page, "file", "virtual.yaml").text):
        eventually(lambda: list_tools(served, "/mcp/desk") == ["core.ping", "words.count"])
    eventually(lambda: list_tools(served, "/mcp") == ["words_count"])


def test_remote_server_of_the_readme_is_served_under_its_namespace(gateways: Gateways) -> None:
    served, remote = gateways("words"), gateways("make run")
    # As documented, with the URL and token of a running server.
    text = find_block(README, "file", "remote.yaml").text.partition("  files:")[0]
    text = text.replace("https://mcp.example.org", remote.base)
    text = text.replace("${TRACKER_TOKEN}", remote.terminal.environment["GATEHOUSE_TOKEN"])
    with settings_file(served, f"{text}    allow_private: true\n"):
        eventually(lambda: "tracker_core_ping" in list_tools(served, "/mcp"))
        ended = served.run("gatehouse call tracker_core_ping --json")
        assert json.loads(ended.stdout)["structuredContent"]["output"]["ok"] is True


@pytest.mark.parametrize("program", ["cursor", "vscode"])
def test_client_file_is_json_with_the_endpoint_url(program: str) -> None:
    files = [json.loads(block.text) for block in blocks(README) if block.language == "json" and not block.mark]
    entries = {"cursor": files[0]["mcpServers"], "vscode": files[1]["servers"]}[program]
    assert entries["gatehouse"]["url"] == "http://127.0.0.1:8080/mcp"
    # Clients sign in themselves; the README also shows where an API key goes.
    assert '"headers": {"Authorization": "Bearer gth_..."}' in README.read_text("utf-8")


@pytest.mark.parametrize("language", ["py", "mjs"])
def test_example_client_calls_a_tool_in_both_eras(language: str, gateways: Gateways, tmp_path: Path) -> None:
    page = ROOT / "docs" / "clients.md"
    (tmp_path / f"client.{language}").write_text(find_block(page, "file", f"client.{language}").text, "utf-8")
    lines = find_block(page, "shell", f"client-{language}").text
    if language == "mjs":
        # Use the package that the tests have already installed.
        lines = lines.replace(f"npm install {npm.CLIENT[0]}\n", "")
        (tmp_path / "node_modules").symlink_to(npm.install_package(npm.CLIENT) / "node_modules")
    ended = replace(gateways("make run").terminal, folder=tmp_path).run(lines)
    assert ended.stdout == find_block(page, "says", f"client-{language}").text


@contextmanager
def settings_file(served: Any, text: str) -> Iterator[None]:
    """Replace the gateway's settings file within the block."""
    file: Path = served.terminal.folder / "gatehouse.yaml"
    before = file.read_text("utf-8")
    file.write_text(text, "utf-8")
    try:
        yield
    finally:
        file.write_text(before, "utf-8")


def list_tools(served: Any, path: str) -> list[str]:
    ended: subprocess.CompletedProcess[str] = served.run(f"gatehouse tools --json --url {served.base}{path} || true")
    return sorted(tool["name"] for tool in json.loads(ended.stdout or "[]"))


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds. It runs a command each time, so no further delay is needed."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
