"""Keys made by the command are good at once, and no longer once revoked."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.testing import Result

from gateway.auth.api_keys import ApiKeys
from gateway.contract import Caller
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.tenants import Tenants

Run = Callable[..., Result]


def whose(key: str, data: Path) -> Caller | None:
    async def ask() -> Caller | None:
        database = await Database.open(data)
        try:
            return await ApiKeys(database, load_secret(data / "secrets", "pepper")).verify(key)
        finally:
            await database.close()

    return asyncio.run(ask())


def test_a_key_is_made_alone_on_stdout_is_good_and_ends_when_revoked(
    command: Callable[..., CompletedProcess[str]], run: Run, tmp_path: Path
) -> None:
    made = command("key", "create", "--tenant", "default", "--subject", "alice")
    assert (made.returncode, made.stderr) == (0, "")
    key = made.stdout.removesuffix("\n")
    assert key.split() == [key]
    caller = whose(key, tmp_path / ".gatehouse")
    assert caller is not None
    assert (caller.principal, caller.scopes) == (
        "default/user:alice",
        {"mcp:list", "mcp:call", "mcp:call:write"},
    )
    assert run("key", "revoke", caller.credential).exit_code == 0
    assert whose(key, tmp_path / ".gatehouse") is None
    again = run("key", "revoke", caller.credential)
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.startswith(f"gatehouse: no live key has the id {caller.credential}")


def test_a_service_key_has_the_scopes_expiry_and_label_it_was_given(run: Run) -> None:
    options = ("--scope", "mcp:list", "--scope", "mcp:admin", "--expires", "30d", "--label", "[night]", "--json")
    made = json.loads(run("key", "create", "--service", "ci", *options).stdout)
    assert made["key"].startswith("gth_")
    assert (made["kind"], made["subject"], made["label"]) == ("service", "ci", "[night]")
    assert made["scopes"] == ["mcp:admin", "mcp:list"]
    assert made["expires"] - made["created"] == pytest.approx(30 * 86400, abs=60)


def test_a_key_may_have_a_scope_that_only_the_organisations_policies_speak_of(run: Run) -> None:
    made = json.loads(run("key", "create", "--subject", "ann", "--scope", "release:cut", "--json").stdout)
    assert made["scopes"] == ["release:cut"]
    assert run("key", "create", "--subject", "ann", "--scope", "release").exit_code == 2


def test_a_scope_that_there_is_not_is_refused_in_a_line_whoever_it_is_for(run: Run) -> None:
    for made in (
        ("key", "create", "--subject", "alice"),
        ("user", "add", "alice", "--password-stdin"),
        ("client", "add", "--service", "ci"),
    ):
        refused = run(*made, "--scope", "mcp:list", "--scope", "mcp:lst", input="correct horse\n")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith("gatehouse: no scope is named mcp:lst (known: bridge:godot, ")
        assert len(refused.stderr.splitlines()) == 1


def test_keys_are_listed_without_their_secrets(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("tenants: {a: {}, b: {}}\n")
    first = run("key", "create", "--tenant", "a", "--subject", "x", "--label", "[bold]").stdout.strip()
    run("key", "create", "--tenant", "b", "--subject", "y")
    listed = run("key", "list", "--json").stdout
    assert [(key["tenant"], key["subject"]) for key in json.loads(listed)] == [("a", "x"), ("b", "y")]
    table = run("key", "list", "--tenant", "a").stdout
    assert "user x" in table
    assert "[bold]" in table
    assert "user y" not in table
    secret = first.split("_", 2)[2]
    assert secret not in listed + table


def test_a_tenant_of_the_database_is_known_and_any_other_is_refused(run: Run, tmp_path: Path) -> None:
    async def add() -> None:
        database = await Database.open(tmp_path / ".gatehouse")
        await (await Tenants.open(database)).add("acme", {})
        await database.close()

    asyncio.run(add())
    assert run("key", "create", "--tenant", "acme", "--subject", "x").exit_code == 0
    refused = run("key", "create", "--tenant", "nobody", "--subject", "x")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("gatehouse: no tenant is named nobody (known: acme, default);")
    assert run("key", "list", "--tenant", "nobody").exit_code == 1


@pytest.mark.parametrize(
    "options",
    [(), ("--subject", "a", "--service", "b"), ("--subject", "a", "--expires", "soon")],
)
def test_a_key_for_nobody_or_with_no_clear_end_is_refused(run: Run, options: tuple[str, ...]) -> None:
    result = run("key", "create", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1


def test_a_data_folder_that_cannot_be_used_is_one_line_that_names_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".gatehouse").touch()
    result = run("key", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"gatehouse: {tmp_path / '.gatehouse'}: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_variable_that_only_a_backend_needs_may_be_unset(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text(
        "backends: {far: {url: 'https://x.example/mcp', headers: {A: '${NOT_SET_HERE}'}}}\n"
    )
    assert run("key", "create", "--subject", "alice").exit_code == 0
    shown = json.loads(run("key", "list", "--json").stdout)
    assert run("key", "revoke", shown[0]["id"]).exit_code == 0
    assert run("tenant", "list").exit_code == 0
    assert run("user", "list").exit_code == 0
    assert run("audit", "list").exit_code == 0
    (tmp_path / "gatehouse.yaml").write_text("data_dir: '${NOT_SET_HERE}'\n")
    assert run("key", "list").exit_code == 2
