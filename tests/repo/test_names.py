"""Whatever a document names exists: commands, options, settings, variables, targets, rooms, stages."""

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gateway.cli.main import app
from tests.repo.documents import README, ROOT, blocks, code, documents, shown

EVERY = pytest.mark.parametrize("document", documents(), ids=shown)
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
SECTIONS: list[tuple[str, str, list[tuple[str, Any]]]] = list(
    runpy.run_path(str(ROOT / "docs" / "make_settings.py"))["sections"]()
)


def commands(document: Path) -> Iterator[list[str]]:
    """The words of every `gatehouse …` in the document, up to the end of that command."""
    for line in code(document):
        for found in re.finditer(r"(?:^|\$\(|/)gatehouse (?=[a-z])([^|)#$]*)", line):
            yield shlex.split(found[1].replace("'", "").replace('"', ""))


def unknown(words: list[str]) -> str | None:
    """The first word that the command does not know."""
    command: Any = get_command(app)
    while hasattr(command, "commands"):
        if not words:
            return None
        if (command_name := words.pop(0)) not in command.commands:
            return command_name
        command = command.commands[command_name]
    options = {name for parameter in command.params for name in parameter.opts}
    own = words[: words.index("--")] if "--" in words else words  # what follows is another program's
    return next((word for word in own if word.startswith("--") and word not in options), None)


@EVERY
def test_every_command_and_option_exists(document: Path) -> None:
    assert [word for words in commands(document) if (word := unknown(list(words)))] == []


def test_the_readme_names_every_command() -> None:
    assert {"serve", "check", "tools", "call", "key", "import", "backends"} <= {words[0] for words in commands(README)}


@EVERY
def test_every_make_target_exists(document: Path) -> None:
    rules = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {target for line in code(document) for target in re.findall(r"(?:^|\s)make ([a-z]+)", line)}
    assert named <= rules


@EVERY
def test_every_variable_exists(document: Path) -> None:
    sources = [path for room in ("gateway", "backends", "tests") for path in (ROOT / room).rglob("*.py")]
    text = "\n".join(path.read_text("utf-8") for path in sources if path.parent.name != "house")
    named = set(re.findall(r"\bGATEHOUSE_\w+", document.read_text("utf-8"))) - {"GATEHOUSE__"}
    assert {name for name in named if name not in text and not is_setting(name)} == set()


def is_setting(variable: str) -> bool:
    """What stands below a module's `options` only the module knows."""
    parts = variable.removeprefix("GATEHOUSE__").lower().split("__")
    known = {path for _, _, rows in SECTIONS for path, _ in rows}
    entry = parts[0] in ("backends", "servers", "tenants") and len(parts) > 2
    return parts[2] in known if entry else ".".join(parts) in known


@EVERY
def test_every_setting_exists(document: Path) -> None:
    paths = {path for _, _, rows in SECTIONS for path, _ in rows}
    sections = {path.partition(".")[0] for path in paths if "." in path}
    named = {span for span in code(document) if re.fullmatch(rf"({'|'.join(sections)})(\.[a-z_]+)+", span)}
    files = {span for span in named if span.endswith((".py", ".md", ".yaml", ".db"))}
    assert named - files <= paths


def test_the_readme_states_the_defaults_of_the_settings_it_lists() -> None:
    fields = {path: field for _, _, rows in SECTIONS for path, field in rows}
    text = README.read_text("utf-8")
    for path, default in re.findall(r"^\| `([a-z_.]+)` \| `([^`]+)` \|", text, re.MULTILINE):
        assert str(fields[path].default) == default, path
    for path, mebibytes in (("calls.max_arguments_bytes", 1), ("calls.max_result_bytes", 8)):
        assert fields[path].default == mebibytes * 1024 * 1024
        assert f"{mebibytes} MiB" in text


def test_every_room_in_the_architecture_exists_and_none_is_left_out() -> None:
    drawing = next(block.text for block in blocks(ARCHITECTURE) if block.text.startswith("gateway/"))
    top = re.findall(r"^(\S+)", drawing, re.MULTILINE)
    rooms = {f"gateway/{room}" for room in re.findall(r"^  (\S+)  ", drawing, re.MULTILINE)}
    assert [room for room in (*top, *rooms) if not (ROOT / room).exists()] == []
    inside = {f"gateway/{path.name}{'/' * path.is_dir()}" for path in (ROOT / "gateway").glob("[a-z]*")}
    assert inside - rooms == set()


def test_the_architecture_draws_the_stages_in_the_order_they_run() -> None:
    drawing = blocks(ARCHITECTURE)[0].text
    drawn = re.findall(r"│   (\w+)  ", drawing)
    source = (ROOT / "gateway" / "parts" / "paths.py").read_text("utf-8").partition("# The order, and why")[2]
    seated = re.findall(r'\("(\w+)", \w', source.partition("Dispatch()")[0])
    assert drawn == [*seated, "dispatch"]
    assert set(drawn) == {path.stem for path in (ROOT / "gateway" / "stages").glob("[a-z]*.py")}
