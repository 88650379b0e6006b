"""The three kinds of backend, and those that are served without being named."""

import importlib
import sys
from pathlib import Path

import pytest

import backends
from gateway.settings import CommandBackend, ModuleBackend, UrlBackend, load

from .conftest import at, read


def test_the_kind_of_a_backend_follows_from_its_key() -> None:
    backends = read("backends: {a: {module: a}, b: {url: 'http://x'}, c: {command: c}}").backends
    assert [type(backend) for backend in backends.values()] == [ModuleBackend, UrlBackend, CommandBackend]


def test_without_backends_the_shipped_modules_that_are_installed_are_served(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = elsewhere / "shipped"
    shipped.mkdir()
    for name in ("core.py", "workflow.py", "launch.py"):
        (shipped / name).touch()
    monkeypatch.setattr(backends, "__path__", [str(shipped)])
    monkeypatch.setattr(sys, "path", [str(elsewhere), *sys.path])
    for name in [each for each in sys.modules if each.startswith("backends.")]:
        monkeypatch.delitem(sys.modules, name)  # another test may have imported it
    for name in ("tree_sitter", "hugo"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    served = load(None, {}).backends
    assert {name: at(load(None, {}), f"backends.{name}.module") for name in served} == {
        "core": "backends.core",
        "project": "backends.core:project",
        "workflow": "backends.workflow",
    }
    for name in ("tree_sitter", "hugo"):
        (elsewhere / f"{name}.py").touch()
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    assert list(load(None, {}).backends) == ["core", "project", "workflow", "launch"]
    assert read("backends: {}").backends == {}
    assert list(read("backends:\n  # nothing yet\n").backends) == ["core", "project", "workflow", "launch"]


def test_launch_is_served_where_its_extra_really_is_installed() -> None:
    """The packages of the extra as they are, one of which is a mere folder."""
    assert "launch" in load(None, {}).backends
