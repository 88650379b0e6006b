"""From an entry of `backends:` to a backend."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gateway.upstream.health import LoadError
from gateway.upstream.local import LocalBackend
from gateway.upstream.module_loader import load_module
from tests.gateway.upstream.test_host import home

Write = Callable[[str], str]

PAIR = """
    from mcp.server import Server
    from pydantic import BaseModel, ConfigDict
    from gateway.contract import Manifest
    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")
        size: int = 1
    manifest = Manifest(options=Options, effects={"a": 0, "b": 2}, timeouts={"a": 5.0}, error_style="protocol")
    homes = []
    def server(home):
        homes.append(home)
        return Server("made")
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """A module of that text, by a name of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def writing(text: str) -> str:
        name = f"loaded_{tmp_path.name.replace('-', '_')}_{len(made)}"
        (tmp_path / f"{name}.py").write_text(dedent(text))
        made.append(name)
        return name

    yield writing
    for name in made:
        sys.modules.pop(name, None)


def load(tmp_path: Path, module: str, attribute: str = "server", **more: Any) -> LocalBackend:
    options, overrides = more.get("options", {}), more.get("overrides", {})
    return load_module("lab", module, attribute, options, overrides, home(tmp_path)[0].services)


def refused(tmp_path: Path, module: str, attribute: str = "server", **more: Any) -> str:
    with pytest.raises(LoadError) as error:
        load(tmp_path, module, attribute, **more)
    text = str(error.value)
    assert text.startswith("backends.lab")
    assert "\n" not in text
    return text


def test_a_pair_of_manifest_and_function_is_given_its_home(tmp_path: Path, write: Write) -> None:
    name = write(PAIR)
    backend = load(tmp_path, name, options={"size": 7})
    (given,) = sys.modules[name].homes
    assert (given.namespace, given.options.size, given.store_name) == ("lab", 7, "lab")
    assert (backend.namespace, backend.manifest.error_style, backend.trusted) == ("lab", "protocol", True)


def test_a_plain_server_object_needs_to_know_nothing(tmp_path: Path, write: Write) -> None:
    name = write('from mcp.server.mcpserver import MCPServer\nserver = other = MCPServer("plain")')
    assert load(tmp_path, name).manifest.error_style == "result"
    assert load(tmp_path, name, "other")


def test_what_the_operator_says_wins_over_the_manifest(tmp_path: Path, write: Write) -> None:
    overrides = {"effects": {"b": 3}, "timeouts": {"c": 9.0}, "timeout": 30.0, "faults": "result"}
    manifest = load(tmp_path, write(PAIR), overrides=overrides).manifest
    assert manifest.effects == {"a": 0, "b": 3}
    assert manifest.timeouts == {"a": 5.0, "c": 9.0, "*": 30.0}
    assert manifest.error_style == "result"
    silent = load(tmp_path, write(PAIR), overrides={"faults": None, "timeout": None}).manifest
    assert (silent.error_style, silent.timeouts) == ("protocol", {"a": 5.0})


def test_what_cannot_be_loaded_says_why_in_one_line(tmp_path: Path, write: Write) -> None:
    assert "cannot be imported" in refused(tmp_path, "no_such_module_here")
    assert "cannot be imported" in refused(tmp_path, write("import no_such_module_here"))
    assert "has no `server`" in refused(tmp_path, write("x = 1"))
    assert "must be an MCP server" in refused(tmp_path, write("server = 7"))
    assert "must be an MCP server" in refused(tmp_path, write("def server(home):\n    return None"))


def test_options_are_checked_and_the_wrong_one_named(tmp_path: Path, write: Write) -> None:
    name = write(PAIR)
    assert refused(tmp_path, name, options={"size": "big"}).startswith("backends.lab.options.size: ")
    assert refused(tmp_path, name, options={"colour": 1}).startswith("backends.lab.options.colour: ")
    plain = write('from mcp.server import Server\nserver = Server("s")')
    assert "takes none" in refused(tmp_path, plain, options={"a": 1})


@pytest.mark.parametrize("text", ["def server(home:\n", "raise ValueError('x')", "1 / 0"])
def test_a_module_that_breaks_as_it_is_imported_says_so_in_one_line(tmp_path: Path, write: Write, text: str) -> None:
    refused(tmp_path, write(text))


def test_a_function_that_fails_to_make_its_server_says_so_in_one_line(tmp_path: Path, write: Write) -> None:
    refused(tmp_path, write("def server(home):\n    raise ValueError('no licence')"))
