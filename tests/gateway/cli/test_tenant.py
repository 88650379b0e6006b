"""Tenants made by the command can have keys at once; a suspended one is refused until it is resumed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]


def listed(run: Run) -> dict[str, dict[str, object]]:
    return {each["name"]: each for each in json.loads(run("tenant", "list", "--json").stdout)}


def test_a_tenant_is_added_listed_suspended_and_resumed(run: Run) -> None:
    assert run("tenant", "add", "acme", "--backend", "core", "--server", "desk", "--read-only").exit_code == 0
    assert run("key", "create", "--tenant", "acme", "--subject", "alice").exit_code == 0
    assert listed(run)["acme"] == {
        "name": "acme",
        "read_only": True,
        "suspended": False,
        "backends": ["core"],
        "servers": ["desk"],
    }
    assert run("tenant", "suspend", "acme").exit_code == 0
    assert listed(run)["acme"]["suspended"] is True
    assert "suspended" in run("tenant", "list").stdout
    assert run("tenant", "resume", "acme").exit_code == 0
    assert listed(run)["acme"]["suspended"] is False


def test_tenants_of_the_settings_are_there_before_the_first_start(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("tenants: {guests: {backends: [core], read_only: true}}")
    assert listed(run)["guests"] == {
        "name": "guests",
        "read_only": True,
        "suspended": False,
        "backends": ["core"],
        "servers": ["*"],
    }


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("add", "default"), "There is a tenant named default already.", 1),
        (("suspend", "nobody"), "No tenant is named nobody.", 1),
        (("resume", "nobody"), "No tenant is named nobody.", 1),
        (("add", "../x"), "A tenant's name is", 2),
    ],
)
def test_a_refusal_is_one_line_and_a_code(run: Run, arguments: tuple[str, ...], said: str, code: int) -> None:
    refused = run("tenant", *arguments)
    assert (refused.exit_code, refused.stdout) == (code, "")
    assert refused.stderr.startswith(f"gatehouse: {said}")
    assert refused.stderr.count("\n") == 1


def test_a_name_that_cannot_be_is_a_wrong_argument_and_an_unknown_backend_is_warned_of(run: Run) -> None:
    assert run("tenant", "add", "Bad_Name").exit_code == 2
    added = run("tenant", "add", "lab", "--backend", "core", "--backend", "nope", "--server", "none")
    assert added.exit_code == 0
    said = added.stderr.splitlines()
    assert said[0].startswith("gatehouse: warning: no backend is named nope (known: core, ")
    assert said[1:] == ["gatehouse: warning: no server is named none (known: none)"]
