"""`gatehouse import`: converts the servers of client files and reports ignored keys."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from gateway.cli.failure import CommandError
from gateway.cli.import_ import ClientServer, read_client_file, strip_comments, translate

Run = Callable[..., Result]
SECRET = "s3cr3t-value"

CLAUDE: Any = {
    "mcpServers": {
        "filesystem": {"command": "npx", "args": ["-y", "server-filesystem", "/srv"]},
        "GitHub MCP!": {
            "type": "http",
            "url": "https://api.example.com/mcp",
            "headers": {"Authorization": f"Bearer {SECRET}"},
        },
        "memory": {"type": "stdio", "command": "npx", "env": {"KEY": SECRET}, "alwaysAllow": ["x"], "timeout": 5},
    }
}


def write(folder: Path, tree: Any, name: str = ".mcp.json") -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return file


def imported(folder: Path) -> Any:
    return yaml.safe_load((folder / "gatehouse.yaml").read_text())["backends"]


def test_servers_are_imported_with_valid_namespaces(run: Run, tmp_path: Path) -> None:
    result = run("import", str(write(tmp_path, CLAUDE)))
    assert result.exit_code == 0, result.stderr
    entries = imported(tmp_path)
    assert list(entries) == ["filesystem", "github-mcp", "memory"]
    assert entries["filesystem"] == {"command": "npx", "args": ["-y", "server-filesystem", "/srv"], "trust": "client"}
    assert "trust: client: the gateway asks for no approval" in result.stdout
    assert entries["github-mcp"]["headers"] == {"Authorization": f"Bearer {SECRET}"}
    assert run("check").exit_code == 0


def test_ignored_keys_are_reported_and_secrets_are_not_shown(run: Run, tmp_path: Path) -> None:
    for more in ((), ("--json", "--replace"), ("--dry-run", "--replace")):
        result = run("import", str(write(tmp_path, CLAUDE)), *more)
        assert "alwaysAllow" in result.stdout
        assert "timeout" in result.stdout
        assert SECRET not in result.stdout + result.stderr


def test_new_file_has_mode_0600_and_an_existing_file_keeps_its_mode(run: Run, tmp_path: Path) -> None:
    source = str(write(tmp_path, CLAUDE))
    run("import", source)
    file = tmp_path / "gatehouse.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    run("import", source, "--replace")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_import_preserves_comments_and_order_of_the_settings(run: Run, tmp_path: Path) -> None:
    before = (
        "# ours\nserver: {port: 9000}  # the port\n\nbackends:\n  # the core\n  core: {module: 'backends.core'}\n\n"
        "limits:  # at the end\n  calls: 60/minute\n"
    )
    file = tmp_path / "gatehouse.yaml"
    file.write_text(before)
    assert run("import", str(write(tmp_path, CLAUDE))).exit_code == 0
    after = file.read_text()
    kept = [line for line in after.splitlines() if line in before.splitlines()]
    assert [line for line in kept if line] == [line for line in before.splitlines() if line]
    assert list(yaml.safe_load(after)) == ["server", "backends", "limits"]
    assert next(iter(imported(tmp_path))) == "core"


def test_existing_entries_are_not_overwritten_without_replace(run: Run, tmp_path: Path) -> None:
    source = str(write(tmp_path, CLAUDE))
    run("import", source)
    before = (tmp_path / "gatehouse.yaml").read_text()
    refused = run("import", source)
    assert refused.exit_code == 1
    assert "filesystem, github-mcp, memory" in refused.stderr
    assert (tmp_path / "gatehouse.yaml").read_text() == before


def test_dry_run_writes_nothing(run: Run, tmp_path: Path) -> None:
    assert run("import", str(write(tmp_path, CLAUDE)), "--dry-run").exit_code == 0
    assert not (tmp_path / "gatehouse.yaml").exists()


def test_inputs_and_variables_of_vs_code_become_environment_variables(run: Run, tmp_path: Path) -> None:
    text = """{
      // servers of this workspace
      "inputs": [{"id": "api-key", "type": "promptString", "password": true}],
      "servers": {
        "one": {"type": "http", "url": "https://x.example/mcp",
                "headers": {"Authorization": "Bearer ${input:api-key}"}},
        "two": {"command": "run", "args": ["${workspaceFolder}/a", "${env:HOME}"],
                "envFile": "${workspaceFolder}/.env"}, /* last */
      },
    }"""
    result = run("import", str(write(tmp_path / ".vscode", text, "mcp.json")))
    assert result.exit_code == 0, result.stderr
    entries = imported(tmp_path)
    assert entries["one"]["headers"]["Authorization"] == "Bearer ${API_KEY}"
    assert entries["two"]["args"] == [f"{tmp_path}/a", "${HOME}"]
    assert "set API_KEY in the environment of the gateway" in result.stdout
    assert "ignored keys: envFile" in result.stdout


def test_servers_of_all_projects_of_claude_code_are_imported(run: Run, tmp_path: Path) -> None:
    same = {"command": "a"}
    tree = {
        "mcpServers": {"one": same},
        "numStartups": 3,
        "projects": {
            "/p": {"mcpServers": {"one": same, "two": {"url": "http://127.0.0.1:3/mcp"}}},
            "/q": {"history": []},
        },
    }
    assert run("import", str(write(tmp_path, tree, ".claude.json"))).exit_code == 0
    assert imported(tmp_path) == {
        "one": {**same, "trust": "client"},
        "two": {"url": "http://127.0.0.1:3/mcp", "allow_private": True, "trust": "client"},
    }


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("a_b.C", "a-b-c"),
        ("7zip", "s-7zip"),
        ("Ünïcode", "n-code"),
        ("!!!", "server"),
        ("x" * 30, "x" * 20),
        ("@scope/server-name", "server-name"),
    ],
)
def test_every_name_becomes_a_valid_namespace(name: str, namespace: str) -> None:
    assert translate(ClientServer(name, {"command": "x"}, Path()), set()).namespace == namespace


def test_conflicting_namespaces_get_a_number() -> None:
    taken: set[str] = set()
    names = [
        translate(ClientServer(name, {"command": "x"}, Path()), taken).namespace
        for name in ("a b", "a_b", "a.b", "y" * 25, "y" * 24)
    ]
    assert names == ["a-b", "a-b-2", "a-b-3", "y" * 20, "y" * 18 + "-2"]


def test_unsupported_variable_is_kept_as_text_and_noted() -> None:
    made = translate(ClientServer("x", {"command": "run", "args": ["${command:pick}"]}, Path()), set())
    assert made.entry["args"] == ["$${command:pick}"]
    assert "is not supported" in made.notes[0]


def test_disabled_server_stays_disabled() -> None:
    made = translate(ClientServer("x", {"command": "run", "disabled": True}, Path()), set())
    assert (made.entry["enabled"], made.left_out) == (False, ())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"mcpServers": {}}', '{"mcpServers": {"x": {"image": "y"}}}'])
def test_file_without_servers_is_rejected(run: Run, tmp_path: Path, text: str) -> None:
    result = run("import", str(write(tmp_path, text)))
    assert result.exit_code == 1
    assert not (tmp_path / "gatehouse.yaml").exists()
    assert "Traceback" not in result.stderr


def test_invalid_entry_leaves_the_settings_file_unchanged(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "gatehouse.yaml"
    file.write_text("backends:\n  core: {module: backends.core}\n")
    result = run("import", str(write(tmp_path, {"mcpServers": {"x": {"url": "ftp://example.com/"}}})))
    assert result.exit_code == 2
    assert "was not changed" in result.stderr
    assert file.read_text() == "backends:\n  core: {module: backends.core}\n"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".gatehouse")] == []


def test_strings_that_look_like_comments_are_preserved() -> None:
    text = '{"a": "http://x//y", "b": "/* no */", "c": "\\\\", "d": [1, 2,], }'
    assert json.loads(strip_comments(text)) == {"a": "http://x//y", "b": "/* no */", "c": "\\", "d": [1, 2]}


@pytest.mark.parametrize(
    ("file", "text", "entry"),
    [
        (
            "config.toml",
            '[mcp_servers.a]\nurl = "https://a.example/mcp"\nbearer_token_env_var = "A_TOKEN"\n',
            {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${A_TOKEN}"}},
        ),
        ("config.toml", '[mcp_servers.a]\ncommand = "npx"\nargs = ["x"]\n', {"command": "npx", "args": ["x"]}),
        (
            "opencode.json",
            '{"mcp": {"a": {"type": "local", "command": ["npx", "x"], "environment": {"K": "v"}, "enabled": true}}}',
            {"command": "npx", "args": ["x"], "env": {"K": "v"}, "enabled": True},
        ),
        (
            "settings.json",
            '{"context_servers": {"a": {"source": "custom", "command": "npx", "args": ["x"]}}}',
            {"command": "npx", "args": ["x"]},
        ),
        (
            "config.yaml",
            "extensions:\n  dev: {type: builtin}\n  a: {type: stdio, cmd: npx, args: [x], envs: {K: v}}\n",
            {"command": "npx", "args": ["x"], "env": {"K": "v"}},
        ),
        (
            "block.yaml",
            "mcpServers:\n- {name: a, type: sse, url: 'https://a.example', requestOptions: {headers: {X: y}}}\n",
            {"type": "sse", "url": "https://a.example", "headers": {"X": "y"}},
        ),
    ],
)
def test_files_of_other_clients_are_read(tmp_path: Path, file: str, text: str, entry: dict[str, Any]) -> None:
    (tmp_path / file).write_text(text)
    (found,) = read_client_file(tmp_path / file)
    assert (found.name, found.entry) == ("a", entry)


@pytest.mark.parametrize(("file", "kind"), [("a.toml", "TOML"), ("a.yaml", "YAML"), ("a.json", "JSON")])
def test_broken_file_is_reported_with_its_format(tmp_path: Path, file: str, kind: str) -> None:
    (tmp_path / file).write_text("[[[")
    with pytest.raises(CommandError, match=f"not {kind}"):
        read_client_file(tmp_path / file)
