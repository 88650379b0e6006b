"""`check` says what would be served, and what is wrong with it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "check_fine.py").write_text("from mcp.server import Server\nserver = Server('fine')\n")
    (folder / "check_broken.py").write_text("raise RuntimeError('no luck')\n")
    return folder / "g.yaml"


def test_each_backend_and_virtual_server_is_shown(run: Run, settings: Path) -> None:
    settings.write_text(
        "backends:\n  a: {module: check_fine}\n  b: {url: 'http://127.0.0.1:1/mcp', enabled: false}\n"
        "  c: {command: npx, args: [secret]}\nservers: {s: {backends: [a, b]}}\ntenants: {t: {backends: [x]}}\n"
    )
    result = run("check", "--config", str(settings))
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["a", "module", "check_fine:server", "yes"] in rows
    assert ["b", "url", "http://127.0.0.1:1/mcp", "no"] in rows
    assert ["c", "command", "npx", "yes"] in rows
    assert "/mcp/s: a, b (underscore names)" in result.stdout
    assert result.stderr.splitlines() == [
        "gatehouse: warning: servers.s: b is not enabled",
        "gatehouse: warning: tenants.t: no backend is named x",
    ]


def test_a_module_that_cannot_be_imported_is_one_line_with_the_reason(run: Run, settings: Path) -> None:
    settings.write_text(
        "backends: {a: {module: check_broken}, b: {module: check_nowhere}, c: {module: 'check_fine:other'}}\n"
    )
    result = run("check", "--config", str(settings))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"gatehouse: {settings}:1:12: backends.a: check_broken cannot be imported: RuntimeError: no luck",
        f"gatehouse: {settings}:1:39: backends.b: check_nowhere cannot be imported: "
        "ModuleNotFoundError: No module named 'check_nowhere'",
        f"gatehouse: {settings}:1:67: backends.c: check_fine has no `other`",
    ]


REFUSED = {
    "backends:\n  far: {url: 'http://10.0.0.1/mcp'}\n": "{}:2:9: backends.far.url: 10.0.0.1 may only be",
    "backends:\n  a: {module: check_fine, options: {zz: 1}}\n": "{}:2:27: backends.a.options: this module takes none",
    "backends:\n  k: {module: backends.knowledge, options: {zz: 1}}\n": "{}:2:45: backends.k.options.zz: ",
    "policies:\n  dir: nope\n": "{}:2:3: policies.dir: nope: there is no schema.cedarschema; start from a copy of ",
    "bus: {url: 'redis://127.0.0.1:1/0'}\nbackends:\n  l: {module: backends.launch}\n": (
        "{}:3:3: backends.l: it works on files, which every process must see: make files_dir one shared volume"
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_start_would_refuse_is_refused_with_its_place_and_not_shown_as_served(
    run: Run, settings: Path, text: str
) -> None:
    settings.write_text(text)
    result = run("check", "--config", str(settings))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("gatehouse: " + REFUSED[text].format(settings))
    if "backends:" in text:
        assert result.stdout.splitlines()[-1].split()[-1] == "no"
    started = run("serve", "--config", str(settings), "--port", "0")
    assert started.exit_code == 2
    assert started.stderr.splitlines()[-1] == line


def test_scripts_get_an_object(run: Run, settings: Path) -> None:
    settings.write_text("backends: {a: {module: check_fine}}\nserver: {host: 0.0.0.0}\n")
    shown = json.loads(run("check", "--config", str(settings), "--json").stdout)
    assert shown["backends"] == [{"namespace": "a", "kind": "module", "target": "check_fine:server", "served": True}]
    assert shown["warnings"] == ["server.public_url: not set, and clients cannot reach http://0.0.0.0:8080"]
    assert shown["errors"] == []


def test_settings_errors_are_lines_and_exit_2(run: Run, settings: Path) -> None:
    settings.write_text("server: {prot: 1}\nlog: {levle: info}\n")
    result = run("check", "--config", str(settings))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"gatehouse: {settings}:1:10: server.prot: unknown key; did you mean port?",
        f"gatehouse: {settings}:2:7: log.levle: unknown key; did you mean level?",
    ]
