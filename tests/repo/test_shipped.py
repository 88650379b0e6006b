"""What the README and the pages say of the modules that ship is what they are."""

import importlib
import re

from gateway.settings import Settings
from tests.repo.documents import README, ROOT

ROWS = re.findall(
    r"^\| (`[a-z`, ]+) \| [^|]+ \| (by default|with|where)([^|]*) \|$", README.read_text("utf-8"), re.MULTILINE
)
SHIPPED = {name: how for names, how, _ in ROWS for name in re.findall(r"`(\w+)`", names)}


def module(namespace: str) -> str:
    return "core" if namespace == "project" else namespace


def test_every_module_that_ships_is_in_the_readme_and_none_that_does_not() -> None:
    # `gox`, `demo` and `lists` are what several of them share.
    there = {path.stem for path in (ROOT / "backends").glob("[a-z]*")} - {"gox", "demo", "lists"}
    assert {module(name) for name in SHIPPED} == there


def test_what_is_served_by_default_is_said_so() -> None:
    default = set(Settings().backends)
    assert {name for name, how in SHIPPED.items() if how == "by default"} == default - {"launch"}


def test_what_has_to_be_named_is_named_as_the_settings_take_it() -> None:
    for names, how, rest in ROWS:
        if how == "with":
            assert f"{names.strip('`')}: {{module: backends.{names.strip('`')}" in rest


def test_the_page_of_errors_names_those_whose_failures_are_protocol_errors() -> None:
    stated = re.search(
        r"`faults: protocol` \(([^)]*) of those that ship\)", (ROOT / "docs/errors.md").read_text("utf-8")
    )
    assert stated
    manifests = {name: importlib.import_module(f"backends.{module(name)}").manifest for name in SHIPPED}
    expected = {name for name, manifest in manifests.items() if manifest.faults == "protocol"}
    assert set(re.findall(r"`(\w+)`", stated[1])) == expected
