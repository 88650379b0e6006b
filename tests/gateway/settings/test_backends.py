"""The three kinds of backend, and the default backends."""

import importlib
import shutil
import sys
from pathlib import Path

import pytest

import backends
from gateway.settings import CommandBackend, ModuleBackend, UrlBackend, load

from .conftest import read, value_at


def test_kind_of_a_backend_is_determined_by_its_key() -> None:
    backends = read("backends: {a: {module: a}, b: {url: 'http://x'}, c: {command: c}}").backends
    assert [type(backend) for backend in backends.values()] == [ModuleBackend, UrlBackend, CommandBackend]


def test_installed_shipped_modules_are_the_default_backends(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = working_directory / "shipped"
    shipped.mkdir()
    shutil.copy(Path(backends.__path__[0]) / "shipped.py", shipped)
    for name in ("core.py", "workflow.py", "launch.py"):
        (shipped / name).touch()
    monkeypatch.setattr(backends, "__path__", [str(shipped)])
    monkeypatch.setattr(sys, "path", [str(working_directory), *sys.path])
    for name in [each for each in sys.modules if each.startswith("backends.")]:
        monkeypatch.delitem(sys.modules, name)  # another test may have imported it
    for name in ("tree_sitter", "hugo"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    served = load(None, {}).backends
    assert {name: value_at(load(None, {}), f"backends.{name}.module") for name in served} == {
        "core": "backends.core",
        "project": "backends.core:project",
        "workflow": "backends.workflow",
    }
    for name in ("tree_sitter", "hugo"):
        (working_directory / f"{name}.py").touch()
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    assert list(load(None, {}).backends) == ["core", "project", "workflow", "launch"]
    assert read("backends: {}").backends == {}
    assert list(read("backends:\n  # nothing yet\n").backends) == ["core", "project", "workflow", "launch"]


def test_launch_is_a_default_backend_if_its_extra_is_installed() -> None:
    """Uses the installed packages of the extra, one of which is a namespace package."""
    assert "launch" in load(None, {}).backends
