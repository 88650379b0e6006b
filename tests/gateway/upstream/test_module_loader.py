"""Loading the module of a `backends:` entry."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gateway.upstream.health import LoadError
from gateway.upstream.local import LocalBackend
from gateway.upstream.module_loader import load_module
from tests.gateway.upstream.test_host import make_host

Write = Callable[[str], str]

MODULE = """
    from mcp.server import Server
    from pydantic import BaseModel, ConfigDict
    from gateway.contract import Manifest
    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")
        size: int = 1
    manifest = Manifest(options=Options, effects={"a": 0, "b": 2}, timeouts={"a": 5.0}, error_style="protocol")
    hosts = []
    def server(host):
        hosts.append(host)
        return Server("made")
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module with that source and returns its unique name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def write_module(text: str) -> str:
        name = f"loaded_{tmp_path.name.replace('-', '_')}_{len(names)}"
        (tmp_path / f"{name}.py").write_text(dedent(text))
        names.append(name)
        return name

    yield write_module
    for name in names:
        sys.modules.pop(name, None)


def load(tmp_path: Path, module: str, attribute: str = "server", **kwargs: Any) -> LocalBackend:
    options, overrides = kwargs.get("options", {}), kwargs.get("overrides", {})
    services = make_host(tmp_path)[0].services
    return load_module("lab", module, attribute, lambda manifest: options, overrides, services)


def load_error(tmp_path: Path, module: str, attribute: str = "server", **kwargs: Any) -> str:
    with pytest.raises(LoadError) as error:
        load(tmp_path, module, attribute, **kwargs)
    text = str(error.value)
    assert text.startswith("backends.lab")
    assert "\n" not in text
    return text


def test_server_factory_is_called_with_its_host(tmp_path: Path, write: Write) -> None:
    name = write(MODULE)
    backend = load(tmp_path, name, options={"size": 7})
    (host,) = sys.modules[name].hosts
    assert (host.namespace, host.options.size, host.store_name) == ("lab", 7, "lab")
    assert (backend.namespace, backend.manifest.error_style, backend.trusted) == ("lab", "protocol", True)


def test_plain_server_object_is_loaded_with_defaults(tmp_path: Path, write: Write) -> None:
    name = write('from mcp.server.mcpserver import MCPServer\nserver = other = MCPServer("plain")')
    assert load(tmp_path, name).manifest.error_style == "result"
    assert load(tmp_path, name, "other")


def test_settings_take_precedence_over_the_manifest(tmp_path: Path, write: Write) -> None:
    overrides = {"effects": {"b": 3}, "timeouts": {"c": 9.0}, "timeout": 30.0, "faults": "result"}
    manifest = load(tmp_path, write(MODULE), overrides=overrides).manifest
    assert (manifest.effects, manifest.effect_overrides) == ({"a": 0, "b": 2}, {"b": 3})
    assert manifest.timeouts == {"a": 5.0, "c": 9.0, "*": 30.0}
    assert manifest.error_style == "result"
    unset = load(tmp_path, write(MODULE), overrides={"faults": None, "timeout": None}).manifest
    assert (unset.error_style, unset.timeouts) == ("protocol", {"a": 5.0})


def test_load_error_names_the_reason_in_one_line(tmp_path: Path, write: Write) -> None:
    assert "cannot be imported" in load_error(tmp_path, "no_such_module_here")
    assert "cannot be imported" in load_error(tmp_path, write("import no_such_module_here"))
    assert "has no `server`" in load_error(tmp_path, write("x = 1"))
    assert "must be an MCP server" in load_error(tmp_path, write("server = 7"))
    assert "must be an MCP server" in load_error(tmp_path, write("def server(host):\n    return None"))


def test_load_error_names_the_invalid_option(tmp_path: Path, write: Write) -> None:
    name = write(MODULE)
    assert load_error(tmp_path, name, options={"size": "big"}).startswith("backends.lab.options.size: ")
    assert load_error(tmp_path, name, options={"colour": 1}).startswith("backends.lab.options.colour: ")
    plain = write('from mcp.server import Server\nserver = Server("s")')
    assert "takes no options" in load_error(tmp_path, plain, options={"a": 1})


@pytest.mark.parametrize("text", ["def server(host:\n", "raise ValueError('x')", "1 / 0"])
def test_module_that_fails_on_import_raises_a_one_line_load_error(tmp_path: Path, write: Write, text: str) -> None:
    load_error(tmp_path, write(text))


def test_failing_server_factory_raises_a_one_line_load_error(tmp_path: Path, write: Write) -> None:
    load_error(tmp_path, write("def server(host):\n    raise ValueError('no licence')"))


SCOPED = """
from mcp.server import MCPServer
from gateway.contract import HttpRoute, Manifest

manifest = Manifest(scopes={{{declared!r}: "x"}})

def server(host):
    host.add_routes(HttpRoute(method="GET", path="/x", scope={needed!r}, handler=None))
    return MCPServer("x")
"""


@pytest.mark.parametrize(
    ("declared", "needed", "message"),
    [
        ("lab:use", "lab:other", "the route /x needs the scope 'lab:other', which is not declared"),
        ("mcp:more", "mcp:more", "which is reserved or malformed"),
        ("a b", "a b", "which is reserved or malformed"),
    ],
)
def test_scope_that_is_undeclared_reserved_or_malformed_is_a_load_error(
    tmp_path: Path, write: Write, declared: str, needed: str, message: str
) -> None:
    assert message in load_error(tmp_path, write(SCOPED.format(declared=declared, needed=needed)))


@pytest.mark.parametrize("needed", ["lab:use", "mcp:call"])
def test_routes_of_a_module_are_part_of_its_backend(tmp_path: Path, write: Write, needed: str) -> None:
    backend = load(tmp_path, write(SCOPED.format(declared="lab:use", needed=needed)))
    assert [(route.path, route.scope) for route in backend.routes] == [("/x", needed)]
