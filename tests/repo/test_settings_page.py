"""The settings and their page agree, and every setting has its sentence and its use."""

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import load
from tests.repo.documents import ROOT, blocks, documents, shown

MAKER: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "make_settings.py"))


def every_setting() -> list[tuple[str, Any]]:
    return [row for _, _, rows in MAKER["sections"]() for row in rows]


def test_the_page_is_what_the_settings_say() -> None:
    assert (ROOT / "docs" / "settings.md").read_text("utf-8") == MAKER["page"](), "run python docs/make_settings.py"


@pytest.mark.parametrize(("path", "field"), every_setting(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_setting_has_a_sentence(path: str, field: Any) -> None:
    assert field.description, f"{path} has none"
    assert field.description[0].isupper()
    assert field.description.endswith(".")


def test_a_setting_that_nothing_reads_and_no_other_is_noted_as_such_on_the_page() -> None:
    # Settings are read where they are handed down; a section's own validator is not yet a use.
    used: set[str] = set()
    room = ROOT / "gateway"
    for path in (room / "app.py", room / "serving.py", *(room / "parts").glob("*.py"), *(room / "cli").glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    # A file that holds a secret is read by the section itself.
    names = {path for path, _ in every_setting() if "." in path and not path.endswith("_file")}
    unread = {path for path in names if path.split(".")[-1] not in used}
    noted = {path for path, note in MAKER["NOTES"].items() if path in unread or note.startswith("Without effect")}
    assert noted == unread, "mend NOTES in docs/make_settings.py, then run it"


def test_no_note_is_left_of_a_setting_that_is_gone() -> None:
    assert set(MAKER["NOTES"]) | MAKER["DERIVED"] <= {path for path, _ in every_setting()}


@pytest.mark.parametrize(
    "row",
    [
        "| `client_secret` | required, or `client_secret_file` | Its secret. |",
        "| `client_id` | required | Client that asks. |",
        "| `auth.client_documents` | derived | Whether a client may be known by the address of a document about it;",
        "| `server.ops_port` | none |",
    ],
)
def test_the_page_says_what_is_required_and_what_is_worked_out(row: str) -> None:
    assert row in MAKER["page"]()


def test_the_example_file_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    settings = load(ROOT / "docs" / "examples" / "gatehouse.yaml", {"PORT": "9000"})
    assert settings.server.port == 9000
    assert set(settings.servers) == {"desk"}


@pytest.mark.parametrize("document", documents(), ids=shown)
def test_every_settings_file_in_a_document_is_accepted(document: Path, tmp_path: Path) -> None:
    for block in blocks(document):
        if block.language != "yaml":
            continue
        # A file that shows tenants alone means them beside the shipped backends.
        (tmp_path / "gatehouse.yaml").write_text(block.text, "utf-8")
        variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block.text), "given")
        assert load(tmp_path / "gatehouse.yaml", variables).source is not None
