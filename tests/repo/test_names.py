"""Names in the documents exist: commands, options, settings, variables, make targets, packages, stages."""

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gateway.cli.main import app
from tests.repo.documents import README, ROOT, blocks, code, documents, relative_path

EACH_DOCUMENT = pytest.mark.parametrize("document", documents(), ids=relative_path)
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
SECTIONS: list[tuple[str, str, list[tuple[str, Any]]]] = list(
    runpy.run_path(str(ROOT / "docs" / "make_settings.py"))["sections"]()
)


def commands(document: Path) -> Iterator[list[str]]:
    """Yield the words of every `gatehouse …` command in the document."""
    for line in code(document):
        for found in re.finditer(r"(?:^|\$\(|/)gatehouse (?=[a-z])([^|)#$]*)", line):
            yield shlex.split(found[1].replace("'", "").replace('"', ""))


def find_unknown_word(words: list[str]) -> str | None:
    """Return the first word that is not a known command or option."""
    command: Any = get_command(app)
    while hasattr(command, "commands"):
        if not words:
            return None
        if (command_name := words.pop(0)) not in command.commands:
            return command_name
        command = command.commands[command_name]
    options = {name for parameter in command.params for name in parameter.opts}
    own = words[: words.index("--")] if "--" in words else words  # the rest belongs to another program
    return next((word for word in own if word.startswith("--") and word not in options), None)


@EACH_DOCUMENT
def test_every_command_and_option_exists(document: Path) -> None:
    assert [word for words in commands(document) if (word := find_unknown_word(list(words)))] == []


def test_readme_shows_the_main_commands() -> None:
    assert {"serve", "check", "tools", "call", "connect", "import", "backends"} <= {
        words[0] for words in commands(README)
    }


@EACH_DOCUMENT
def test_every_make_target_exists(document: Path) -> None:
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {target for line in code(document) for target in re.findall(r"(?:^|\s)make ([a-z-]+)", line)}
    assert named <= rules


@EACH_DOCUMENT
def test_every_variable_exists(document: Path) -> None:
    sources = [path for package in ("gateway", "backends", "tests") for path in (ROOT / package).rglob("*.py")]
    text = "\n".join(path.read_text("utf-8") for path in sources if path.parent.name != "repo")
    named = set(re.findall(r"\bGATEHOUSE_\w+", document.read_text("utf-8"))) - {"GATEHOUSE__"}
    assert {name for name in named if name not in text and not is_setting(name)} == set()


def is_setting(variable: str) -> bool:
    """Whether the variable is a setting. Keys below a module's `options` are not checked."""
    parts = variable.removeprefix("GATEHOUSE__").lower().split("__")
    known = {path for _, _, rows in SECTIONS for path, _ in rows}
    entry = parts[0] in ("backends", "servers", "tenants") and len(parts) > 2
    return parts[2] in known if entry else ".".join(parts) in known


@EACH_DOCUMENT
def test_every_setting_exists(document: Path) -> None:
    paths = {path for _, _, rows in SECTIONS for path, _ in rows}
    sections = {path.partition(".")[0] for path in paths if "." in path}
    named = {span for span in code(document) if re.fullmatch(rf"({'|'.join(sections)})(\.[a-z_]+)+", span)}
    files = {span for span in named if span.endswith((".py", ".md", ".yaml", ".db"))}
    assert named - files <= paths


def test_limits_page_states_the_defaults_of_the_settings_it_lists() -> None:
    fields = {path: field for _, _, rows in SECTIONS for path, field in rows}
    text = (ROOT / "docs" / "limits.md").read_text("utf-8")
    assert fields["limits.calls"].default == "600/minute"
    assert "600 a minute" in text
    assert fields["calls.deadline"].default == 60
    for path, mebibytes in (("calls.max_arguments_bytes", 1), ("calls.max_result_bytes", 8)):
        assert fields[path].default == mebibytes * 1024 * 1024
        assert f"{mebibytes} MiB" in text


def test_architecture_lists_exactly_the_existing_packages_and_modules() -> None:
    drawing = next(block.text for block in blocks(ARCHITECTURE) if block.text.startswith("gateway/"))
    top = re.findall(r"^(\S+)", drawing, re.MULTILINE)
    listed = {f"gateway/{name}" for name in re.findall(r"^  (\S+)  ", drawing, re.MULTILINE)}
    assert [name for name in (*top, *listed) if not (ROOT / name).exists()] == []
    existing = {f"gateway/{path.name}{'/' * path.is_dir()}" for path in (ROOT / "gateway").glob("[a-z]*")}
    assert existing - listed == set()


def test_architecture_shows_the_stages_in_their_order() -> None:
    drawing = blocks(ARCHITECTURE)[0].text
    drawn = re.findall(r"│   (\w+)  ", drawing)
    source = (ROOT / "gateway" / "wiring" / "call_path.py").read_text("utf-8").partition("# The order matters")[2]
    composed = re.findall(r'\("(\w+)", \w', source.partition("Dispatch(")[0])
    assert drawn == [*composed, "dispatch"]
    modules = {path.stem for path in (ROOT / "gateway" / "stages").glob("[a-z]*.py")}
    assert set(drawn) == modules - {"pipeline"}  # `pipeline` composes the stages
