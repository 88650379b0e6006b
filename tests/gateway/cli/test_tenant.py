"""`gatehouse tenant`: add, list, suspend and resume."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]


def listed(run: Run) -> dict[str, dict[str, object]]:
    return {each["name"]: each for each in json.loads(run("tenant", "list", "--json").stdout)}


def test_a_tenant_is_added_listed_suspended_and_resumed(run: Run) -> None:
    assert run("tenant", "add", "acme", "--backend", "core", "--server", "tools", "--read-only").exit_code == 0
    assert run("key", "create", "--tenant", "acme", "--subject", "alice").exit_code == 0
    assert listed(run)["acme"] == {
        "name": "acme",
        "read_only": True,
        "suspended": False,
        "backends": ["core"],
        "servers": ["tools"],
    }
    assert run("tenant", "suspend", "acme").exit_code == 0
    assert listed(run)["acme"]["suspended"] is True
    assert "suspended" in run("tenant", "list").stdout
    assert run("tenant", "resume", "acme").exit_code == 0
    assert listed(run)["acme"]["suspended"] is False


def test_tenants_of_the_settings_exist_before_the_first_start(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("tenants: {guests: {backends: [core], read_only: true}}")
    assert listed(run)["guests"] == {
        "name": "guests",
        "read_only": True,
        "suspended": False,
        "backends": ["core"],
        "servers": ["*"],
    }


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("add", "default"), "There is a tenant named default already.", 1),
        (("suspend", "unknown"), "No tenant is named unknown.", 1),
        (("resume", "unknown"), "No tenant is named unknown.", 1),
        (("add", "../x"), "A tenant's name is", 2),
    ],
)
def test_rejected_command_prints_one_line_and_an_exit_code(
    run: Run, arguments: tuple[str, ...], message: str, code: int
) -> None:
    refused = run("tenant", *arguments)
    assert (refused.exit_code, refused.stdout) == (code, "")
    assert refused.stderr.startswith(f"gatehouse: {message}")
    assert refused.stderr.count("\n") == 1


def test_add_rejects_an_invalid_name_and_warns_about_unknown_backends(run: Run) -> None:
    assert run("tenant", "add", "Bad_Name").exit_code == 2
    added = run("tenant", "add", "lab", "--backend", "core", "--backend", "nope", "--server", "none")
    assert added.exit_code == 0
    lines = added.stderr.splitlines()
    assert lines[0].startswith("gatehouse: warning: unknown backend nope (known: core, ")
    assert lines[1:] == ["gatehouse: warning: unknown server none (known: none)"]
