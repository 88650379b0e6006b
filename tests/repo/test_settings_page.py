"""The settings page matches the settings, and every setting has a description and is read."""

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import load
from tests.repo.documents import ROOT, blocks, documents, relative_path

MAKER: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "make_settings.py"))


def every_setting() -> list[tuple[str, Any]]:
    return [row for _, _, rows in MAKER["sections"]() for row in rows]


def attributes(tree: ast.AST) -> set[str]:
    """Return the names of all attributes that the code reads or sets."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_settings_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "settings.md").read_text("utf-8") == MAKER["page"](), "run python docs/make_settings.py"


@pytest.mark.parametrize(("path", "field"), every_setting(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_setting_has_a_description(path: str, field: Any) -> None:
    assert field.description, f"{path} has no description"
    assert field.description[0].isupper()
    assert field.description.endswith(".")


def test_exactly_the_unread_settings_are_noted_on_the_page() -> None:
    # Settings are read in the wiring; a validator of their own section does not count.
    used: set[str] = set()
    package = ROOT / "gateway"
    readers = (
        package / "app.py",
        package / "runner.py",
        *(package / "wiring").glob("*.py"),
        *(package / "cli").glob("*.py"),
    )
    for path in readers:
        used |= attributes(ast.parse(path.read_text("utf-8")))
    # A method of a section counts if one of the readers calls it.
    for path in (package / "settings").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.decorator_list and node.name in used:
                used |= attributes(node)
    # The section itself reads files that hold secrets.
    names = {path for path, _ in every_setting() if "." in path and not path.endswith("_file")}
    unread = {path for path in names if path.split(".")[-1] not in used}
    noted = {path for path, note in MAKER["NOTES"].items() if path in unread or note.startswith("Without effect")}
    assert noted == unread, "correct NOTES in docs/make_settings.py, then run it"


def test_every_note_belongs_to_an_existing_setting() -> None:
    assert set(MAKER["NOTES"]) | MAKER["DERIVED"] <= {path for path, _ in every_setting()}


@pytest.mark.parametrize(
    "row",
    [
        "| `client_secret` | required, or `client_secret_file` | Client secret of the gateway. |",
        "| `client_id` | required | Client id of the gateway at the introspection endpoint. |",
        "| `auth.client_documents` | derived | Whether clients may identify themselves by the URL of a client metadata",
        "| `server.ops_port` | none |",
    ],
)
def test_settings_page_marks_required_and_derived_settings(row: str) -> None:
    assert row in MAKER["page"]()


def test_example_settings_file_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    settings = load(ROOT / "docs" / "examples" / "gatehouse.yaml", {"PORT": "9000"})
    assert settings.server.port == 9000
    assert set(settings.servers) == {"desk"}


@pytest.mark.parametrize("document", documents(), ids=relative_path)
def test_every_settings_file_in_a_document_is_valid(document: Path, tmp_path: Path) -> None:
    for block in blocks(document):
        if block.language != "yaml":
            continue
        # A file with tenants only serves the default backends.
        (tmp_path / "gatehouse.yaml").write_text(block.text, "utf-8")
        variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block.text), "given")
        assert load(tmp_path / "gatehouse.yaml", variables).source is not None
