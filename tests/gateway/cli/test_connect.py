"""`gatehouse connect`: prints the entry of each client, or writes it without changing the rest of the file."""

import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from gateway.cli.client_apps import CLIENTS
from gateway.cli.import_ import read_client_file, strip_comments

Run = Callable[..., Result]
URL = "http://127.0.0.1:8080/mcp"

COMMENTED = """\
// mine
{
  /* servers of the team */
  "servers": {
    "other": {"type": "http", "url": "https://other.example/mcp"}, // keep
  },
  "inputs": [],
}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("client", "line"),
    [
        ("claude-code", ["claude", "mcp", "add", "--transport", "http", "gatehouse", URL]),
        ("codex", ["codex", "mcp", "add", "gatehouse", "--url", URL]),
    ],
)
def test_command_of_a_client_is_the_only_line_on_stdout(run: Run, client: str, line: list[str]) -> None:
    assert shlex.split(run("connect", client).stdout) == line


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_gets_the_public_url_of_the_settings(run: Run, tmp_path: Path, client: str) -> None:
    (tmp_path / "gatehouse.yaml").write_text("server: {public_url: 'https://mcp.acme.example'}\n")
    assert "https://mcp.acme.example/mcp" in run("connect", client).stdout


@pytest.mark.parametrize("client", [name for name, app in CLIENTS.items() if app.file and name != "claude-desktop"])
def test_written_entry_can_be_read_by_gatehouse_import(run: Run, tmp_path: Path, client: str) -> None:
    app = CLIENTS[client]
    assert app.file is not None
    file = tmp_path / "made" / app.file().name
    result = run("connect", client, "--write", "--key", "--token", "gth_key", "--file", str(file))
    assert result.exit_code == 0, result.stderr
    (found,) = read_client_file(file)
    assert (found.name, found.entry.get("url") or found.entry["serverUrl"]) == ("gatehouse", URL)
    assert found.entry["headers"]["Authorization"].startswith("Bearer ")
    # A client that expands variables has no secret in its file.
    assert ("gth_key" in file.read_text()) == app.needs_token
    assert file.stat().st_mode & 0o777 == 0o600
    again = run("connect", client, "--write", "--key", "--token", "gth_key", "--file", str(file))
    assert "nothing changed" in again.stdout


def test_fourteen_clients_are_known() -> None:
    assert len([name for name in CLIENTS if name != "inspector"]) >= 14


@pytest.mark.parametrize("client", [name for name, app in CLIENTS.items() if app.needs_token])
def test_client_that_expands_no_variables_needs_the_key_itself(run: Run, tmp_path: Path, client: str) -> None:
    result = run("connect", client, "--write", "--key", "--file", str(tmp_path / "file.json"))
    assert result.exit_code == 2
    assert "the file must contain the key" in result.stderr


def test_yaml_file_keeps_its_comments_and_other_servers(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "# mine\nGOOSE_MODEL: x # keep\nextensions:\n  other: {type: stdio, cmd: npx, args: [a], enabled: true}\n"
    )
    assert run("connect", "goose", "--write", "--file", str(file)).exit_code == 0
    text = file.read_text()
    assert text.startswith("# mine\nGOOSE_MODEL: x # keep\n")
    assert [(each.name, each.entry.get("url") or each.entry["command"]) for each in read_client_file(file)] == [
        ("other", "npx"),
        ("gatehouse", URL),
    ]


@pytest.mark.parametrize("client", ["goose", "continue"])
def test_broken_yaml_file_is_not_changed(run: Run, tmp_path: Path, client: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("a: [unclosed\n")
    result = run("connect", client, "--write", "--file", str(file))
    assert result.exit_code != 0
    assert "was not changed" in result.stderr
    assert file.read_text() == "a: [unclosed\n"


@pytest.mark.parametrize(
    ("client", "file"),
    [
        ("claude-code", "{folder}/.mcp.json"),
        ("claude-desktop", "{home}/.config/Claude/claude_desktop_config.json"),
        ("cursor", "{home}/.cursor/mcp.json"),
        ("vscode", "{folder}/.vscode/mcp.json"),
        ("codex", "{home}/.codex/config.toml"),
    ],
)
def test_write_finds_the_client_file_and_is_idempotent(
    run: Run, tmp_path: Path, home: Path, client: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    path = Path(file.format(folder=tmp_path, home=home))
    assert run("connect", client, "--write", "--token", "gth_x").exit_code == 0
    first = path.read_bytes()
    assert b"gatehouse" in first
    again = run("connect", client, "--write", "--token", "gth_x")
    assert "nothing changed" in again.stdout
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == [path.name]
    assert path.read_bytes() == first


def test_write_preserves_comments_and_other_servers_and_keeps_a_backup(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(COMMENTED)
    assert run("connect", "vscode", "--write", "--key", "--file", str(file)).exit_code == 0
    text = file.read_text()
    for kept in ("// mine", "/* servers of the team */", "// keep"):
        assert kept in text
    tree = json.loads(strip_comments(text))
    assert list(tree["servers"]) == ["gatehouse", "other"]
    assert [each["id"] for each in tree["inputs"]] == ["gatehouse-key"]
    (backup,) = tmp_path.glob("mcp.json.*.bak")
    assert backup.read_text() == COMMENTED


def test_write_replaces_only_the_entry_of_the_same_name(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"url": "x"}, "gatehouse": {"url": "old"}, "b": {"url": "y"}}, "more": 1}')
    assert run("connect", "cursor", "--write", "--file", str(file)).exit_code == 0
    tree = json.loads(file.read_text())
    assert tree == {"mcpServers": {"a": {"url": "x"}, "gatehouse": {"url": URL}, "b": {"url": "y"}}, "more": 1}


def test_write_preserves_the_rest_of_the_codex_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('# mine\nmodel = "x"\n\n[mcp_servers.gatehouse]\nurl = "old"\n\n[other]\na = 1 # keep\n')
    assert run("connect", "codex", "--write", "--key", "--file", str(file)).exit_code == 0
    text = file.read_text()
    assert "# mine" in text
    assert "# keep" in text
    expected = {"url": URL, "bearer_token_env_var": "GATEHOUSE_TOKEN"}
    assert tomllib.loads(text) == {"model": "x", "mcp_servers": {"gatehouse": expected}, "other": {"a": 1}}


@pytest.mark.parametrize(
    ("client", "text"), [("cursor", "{"), ("cursor", "[]"), ("codex", "= 1"), ("cursor", '{"mcpServers": 3}')]
)
def test_unparseable_client_file_is_not_changed(run: Run, tmp_path: Path, client: str, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    result = run("connect", client, "--write", "--file", str(file))
    assert result.exit_code == 1
    assert "was not changed" in result.stderr
    assert file.read_text() == text


def test_claude_desktop_gets_a_stdio_command_with_or_without_key(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "desktop.json"
    refused = run("connect", "claude-desktop", "--write", "--key", "--file", str(file))
    assert (refused.exit_code, file.exists()) == (2, False)
    assert run("connect", "claude-desktop", "--write", "--file", str(file)).exit_code == 0
    entry = json.loads(file.read_text())["mcpServers"]["gatehouse"]
    assert (entry["args"], "env" in entry) == (["stdio", "--url", URL], False)
    assert run("connect", "claude-desktop", "--write", "--token", "gth_x", "--file", str(file)).exit_code == 0
    entry = json.loads(file.read_text())["mcpServers"]["gatehouse"]
    assert entry["args"] == ["stdio", "--url", URL]
    assert entry["env"] == {"GATEHOUSE_TOKEN": "gth_x"}
    assert Path(entry["command"]).is_absolute()


def test_unknown_client_is_reported_on_one_line(run: Run) -> None:
    result = run("connect", "emacs")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "known: claude-code, claude-desktop, cursor, vscode, codex, gemini-cli" in result.stderr


def test_connect_requires_a_url_if_the_port_is_not_fixed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("server: {port: 0}\n")
    assert run("connect", "cursor").exit_code == 2
    assert "http://h/mcp" in run("connect", "cursor", "--url", "http://h/mcp").stdout


def test_json_output_is_one_object(run: Run) -> None:
    shown: dict[str, Any] = json.loads(run("connect", "vscode", "--json").stdout)
    assert shown["entry"] == {"type": "http", "url": URL}
    assert shown["file"] == ".vscode/mcp.json"


@pytest.mark.parametrize("client", CLIENTS)
def test_key_in_the_environment_is_used_only_with_the_key_option(
    run: Run, tmp_path: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_TOKEN", "gth_canary")
    shown = run("connect", client)
    assert "gth_canary" not in shown.stdout + shown.stderr
    if client != "inspector":
        file = tmp_path / "file"
        assert run("connect", client, "--write", "--file", str(file)).exit_code == 0
        assert "gth_canary" not in file.read_text()
    if client == "claude-desktop":
        assert "gth_canary" in run("connect", client, "--key").stdout
        assert "gth_other" in run("connect", client, "--token", "gth_other").stdout
