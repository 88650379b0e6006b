"""`gatehouse backends`: add, remove, list, check and pin."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

Run = Callable[..., Result]
STDIO = Path(__file__).parents[2] / "flows" / "fixtures" / "handwritten_stdio.py"


def backends(folder: Path) -> Any:
    return yaml.safe_load((folder / "gatehouse.yaml").read_text())["backends"]


def test_a_command_a_url_and_a_module_are_added_and_removed(run: Run, tmp_path: Path) -> None:
    added = run("backends", "add", "files", "--env", "A=b=c", "--", "npx", "-y", "server")
    assert added.exit_code == 0
    assert "trust: client: the gateway asks for no approval" in added.stdout
    assert run("backends", "add", "far", "--url", "https://x.example/mcp", "--header", "X-Key=${K:-1}").exit_code == 0
    module = run("backends", "add", "core", "--module", "backends.core")
    assert module.exit_code == 0
    assert "trust" not in module.stdout
    assert backends(tmp_path) == {
        "files": {"command": "npx", "args": ["-y", "server"], "env": {"A": "b=c"}, "trust": "client"},
        "far": {"url": "https://x.example/mcp", "headers": {"X-Key": "${K:-1}"}, "trust": "client"},
        "core": {"module": "backends.core"},
    }
    assert run("backends", "remove", "far").exit_code == 0
    assert list(backends(tmp_path)) == ["files", "core"]


def test_adding_the_first_backend_names_the_default_backends_no_longer_served(run: Run) -> None:
    first = run("backends", "add", "core", "--module", "backends.core")
    assert "knowledge" in first.stderr
    assert run("backends", "add", "far", "--url", "https://x.example/mcp").stderr == ""


def test_add_names_unset_variables(run: Run) -> None:
    assert run("backends", "add", "core", "--module", "backends.core").exit_code == 0
    options = ("--header", "A=${NOT_SET_HERE}", "--header", "B=${PATH}", "--header", "C=${NOR_THIS:-x}")
    added = run("backends", "add", "far", "--url", "https://x.example/mcp", *options)
    assert added.exit_code == 0
    assert "set NOT_SET_HERE in the environment" in added.stderr
    assert "PATH," not in added.stderr
    assert "NOR_THIS" not in added.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("x",),
        ("x", "--url", "https://x.example", "--module", "y"),
        ("X_y", "--module", "backends.core"),
        ("x", "--url", "nonsense"),
        ("x", "--url", "https://x.example", "--header", "s3cr3t"),
    ],
)
def test_add_rejects_an_invalid_entry_and_writes_nothing(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run("backends", "add", *arguments)
    assert result.exit_code == 2
    assert "s3cr3t" not in result.stderr
    assert not (tmp_path / "gatehouse.yaml").exists()


def test_remove_rejects_a_backend_used_by_a_virtual_server(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text(
        "backends:\n  core: {module: backends.core}\n  b: {command: x}\nservers:\n  s: {backends: [core, b]}\n"
    )
    result = run("backends", "remove", "b")
    assert result.exit_code == 2
    assert "servers.s" in result.stderr
    assert list(backends(tmp_path)) == ["core", "b"]


def test_remove_of_an_unknown_backend_lists_the_known_ones(run: Run) -> None:
    run("backends", "add", "core", "--module", "backends.core")
    assert "known: core" in run("backends", "remove", "other").stderr
    assert run("backends", "add", "core", "--module", "backends.core").exit_code == 1
    assert run("backends", "add", "core", "--module", "backends.core", "--replace").exit_code == 0


def test_list_shows_commands_without_arguments(run: Run) -> None:
    run("backends", "add", "files", "--", "npx", "s3cr3t")
    rows = json.loads(run("backends", "list", "--json").stdout)
    assert rows == [{"namespace": "files", "kind": "command", "target": "npx", "served": True, "trust": "client"}]
    assert "s3cr3t" not in run("backends", "list").stdout


def test_check_reports_the_problem_and_fix_of_each_backend(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text(
        yaml.safe_dump(
            {
                "backends": {
                    "good": {"command": sys.executable, "args": ["-I", str(STDIO)]},
                    "missing": {"command": "no-such-program-here"},
                    "refused": {"url": "http://127.0.0.1:1/mcp", "allow_private": True},
                    "private": {"url": "http://127.0.0.1:1/mcp"},
                    "module": {"module": "no_such_module"},
                    "off": {"command": "no-such-program-here", "enabled": False},
                }
            }
        )
    )
    result = run("backends", "check", "--json")
    assert result.exit_code == 1
    found = {each["namespace"]: each for each in json.loads(result.stdout)}
    assert set(found) == {"good", "missing", "refused", "private", "module"}
    assert found["good"]["good"]
    assert found["good"]["eras"] == ["handshake"]
    assert found["good"]["tools"] > 0
    assert "not on the PATH" in found["missing"]["mend"]
    assert "connection refused" in found["refused"]["mend"]
    assert "allow_private" in found["private"]["mend"]
    assert "cannot be imported" in found["module"]["problem"]
    assert run("backends", "check", "good").stdout.startswith("✓ good: handshake")
    assert run("backends", "check", "unknown").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--url", "http://10.0.0.1/mcp"), "backends.y.url: 10.0.0.1 may only be reached by https."),
        (("--url", "https://10.0.0.1/mcp"), "backends.y.url: 10.0.0.1 is not on the public internet."),
        (("--module", "add_nowhere"), "backends.y: add_nowhere cannot be imported: ModuleNotFoundError"),
    ],
)
def test_add_rejects_an_entry_that_would_block_reloads(
    run: Run, tmp_path: Path, arguments: tuple[str, str], line: str
) -> None:
    file = tmp_path / "gatehouse.yaml"
    file.write_text("backends: {core: {module: backends.core}}  # mine\n")
    result = run("backends", "add", "y", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"gatehouse: {line}")
    assert ("--allow-private" in result.stderr) == ("--url" in arguments)
    assert lines[-1] == "gatehouse: gatehouse.yaml was not changed"
    assert file.read_text() == "backends: {core: {module: backends.core}}  # mine\n"
    if "--url" in arguments:
        assert run("backends", "add", "y", *arguments, "--allow-private").exit_code == 0


def test_list_warns_about_unset_variables(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text(
        "backends:\n  far: {url: 'https://x.example/mcp', headers: {A: 'Bearer ${NOT_SET_HERE}'}, timeout: 5}\n"
        "  any: {url: '${NOR_THIS}', enabled: false}\nservers: {s: {backends: [far]}}\n"
    )
    result = run("backends", "list", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [
        {"namespace": "far", "kind": "url", "target": "https://x.example/mcp", "served": True, "trust": "annotations"},
        {"namespace": "any", "kind": "url", "target": "https://${NOR_THIS}", "served": False, "trust": "annotations"},
    ]
    assert "warning: backends.far: NOT_SET_HERE is not set in this environment" in result.stderr
    assert "NOT_SET_HERE is not set; set it" in run("check").stderr


@pytest.mark.parametrize("arguments", [("add", "x", "--module", "backends.core"), ("import",)])
def test_missing_folder_of_the_settings_file_is_reported(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "c.json").write_text('{"mcpServers": {"x": {"command": "npx"}}}')
    before = ("backends", *arguments) if arguments[0] == "add" else ("import", "c.json")
    result = run(*before, "--config", "other/x.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"gatehouse: folder {tmp_path}/other does not exist; create it, or choose another file with --config"
    ]


def test_pin_rejects_an_unknown_backend(run: Run) -> None:
    result = run("backends", "pin", "nope")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown backend nope (known: core, " in result.stderr
    assert run("backends", "pin", "core").exit_code == 0
