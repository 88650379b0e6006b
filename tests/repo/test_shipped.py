"""The pages describe the shipped modules correctly."""

import importlib
import re

from gateway.contract.shipped import shipped_backends
from gateway.settings import Settings
from tests.repo.documents import ROOT

PAGE = ROOT / "docs" / "shipped.md"
ROWS = re.findall(
    r"^\| (`[a-z`, ]+) \| [^|]+ \| (by default|with|where)([^|]*) \|$", PAGE.read_text("utf-8"), re.MULTILINE
)
SHIPPED = {name: how for names, how, _ in ROWS for name in re.findall(r"`(\w+)`", names)}


def module(namespace: str) -> str:
    return "core" if namespace == "project" else namespace


def test_page_lists_exactly_the_shipped_modules() -> None:
    # `gox`, `demo` and `lists` are shared by several modules; `shipped` lists them.
    existing = {path.stem for path in (ROOT / "backends").glob("[a-z]*")} - {"gox", "demo", "lists", "shipped"}
    assert set(shipped_backends()) == set(SHIPPED)
    assert {module(name) for name in SHIPPED} == existing


def test_page_marks_the_default_backends() -> None:
    default = set(Settings().backends)
    assert {name for name, how in SHIPPED.items() if how == "by default"} == default - {"launch"}


def test_page_shows_valid_entries_for_optional_modules() -> None:
    for names, how, rest in ROWS:
        if how == "with":
            assert f"{names.strip('`')}: {{module: backends.{names.strip('`')}" in rest


def test_errors_page_names_the_modules_with_protocol_errors() -> None:
    stated = re.search(
        r"`faults: protocol` \(([^)]*) of those that ship\)", (ROOT / "docs/errors.md").read_text("utf-8")
    )
    assert stated
    manifests = {name: importlib.import_module(f"backends.{module(name)}").manifest for name in SHIPPED}
    expected = {name for name, manifest in manifests.items() if manifest.error_style == "protocol"}
    assert set(re.findall(r"`(\w+)`", stated[1])) == expected
