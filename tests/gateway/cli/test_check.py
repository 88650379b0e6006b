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
    (folder / "check_fine.py").write_text("server = object()\n")
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
        "gatehouse: backends.a: check_broken cannot be imported: RuntimeError: no luck",
        "gatehouse: backends.b: check_nowhere cannot be imported: ModuleNotFoundError: No module named 'check_nowhere'",
        "gatehouse: backends.c: check_fine has no other",
    ]


def test_scripts_get_an_object(run: Run, settings: Path) -> None:
    settings.write_text("backends: {a: {module: check_fine}}\nserver: {host: 0.0.0.0}\n")
    shown = json.loads(run("check", "--config", str(settings), "--json").stdout)
    assert shown["backends"] == [{"namespace": "a", "kind": "module", "target": "check_fine:server", "enabled": True}]
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
