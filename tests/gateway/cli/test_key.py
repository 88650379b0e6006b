"""`gatehouse key`: create, list and revoke API keys."""

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


def verify_key(key: str, data: Path) -> Caller | None:
    async def verify() -> Caller | None:
        database = await Database.open(data)
        try:
            return await ApiKeys(database, load_secret(data / "secrets", "pepper")).verify(key)
        finally:
            await database.close()

    return asyncio.run(verify())


def test_key_is_the_only_output_and_is_valid_until_revoked(
    command: Callable[..., CompletedProcess[str]], run: Run, tmp_path: Path
) -> None:
    made = command("key", "create", "--tenant", "default", "--subject", "alice")
    assert (made.returncode, made.stderr) == (0, "")
    key = made.stdout.removesuffix("\n")
    assert key.split() == [key]
    caller = verify_key(key, tmp_path / ".gatehouse")
    assert caller is not None
    assert (caller.principal, caller.scopes) == (
        "default/user:alice",
        {"mcp:list", "mcp:call", "mcp:call:write"},
    )
    assert run("key", "revoke", caller.credential).exit_code == 0
    assert verify_key(key, tmp_path / ".gatehouse") is None
    again = run("key", "revoke", caller.credential)
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.startswith(f"gatehouse: there is no active key {caller.credential}")


def test_service_key_has_the_supplied_scopes_expiry_and_label(run: Run) -> None:
    options = ("--scope", "mcp:list", "--scope", "mcp:admin", "--expires", "30d", "--label", "[night]", "--json")
    made = json.loads(run("key", "create", "--service", "ci", *options).stdout)
    assert made["key"].startswith("gth_")
    assert (made["kind"], made["subject"], made["label"]) == ("service", "ci", "[night]")
    assert made["scopes"] == ["mcp:admin", "mcp:list"]
    assert made["expires"] - made["created"] == pytest.approx(30 * 86400, abs=60)


def test_key_accepts_a_custom_scope_for_policies(run: Run) -> None:
    made = json.loads(run("key", "create", "--subject", "ann", "--scope", "release:cut", "--json").stdout)
    assert made["scopes"] == ["release:cut"]
    assert run("key", "create", "--subject", "ann", "--scope", "release").exit_code == 2


def test_unknown_scope_is_rejected_for_keys_users_and_clients(run: Run) -> None:
    for made in (
        ("key", "create", "--subject", "alice"),
        ("user", "add", "alice", "--password-stdin"),
        ("client", "add", "--service", "ci"),
    ):
        refused = run(*made, "--scope", "mcp:list", "--scope", "mcp:lst", input="correct horse\n")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith("gatehouse: unknown scope mcp:lst (known: mcp:admin, ")
        assert len(refused.stderr.splitlines()) == 1


def test_scope_of_a_module_is_accepted_if_the_settings_have_the_module(run: Run, tmp_path: Path) -> None:
    create = ("client", "add", "--service", "ci", "--scope", "sensors:report")
    assert run(*create).exit_code == 2
    (tmp_path / "gatehouse.yaml").write_text("backends: {s: {module: tests.flows.fixtures.sensors}}\n")
    assert run(*create).exit_code == 0
    refused = run("client", "add", "--service", "ci", "--scope", "sensors:repot")
    assert "known: mcp:admin, mcp:approve, mcp:call, mcp:call:write, mcp:list, sensors:report" in refused.stderr


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


def test_tenant_of_the_database_is_accepted_and_an_unknown_one_rejected(run: Run, tmp_path: Path) -> None:
    async def add() -> None:
        database = await Database.open(tmp_path / ".gatehouse")
        await (await Tenants.open(database)).add("acme", {})
        await database.close()

    asyncio.run(add())
    assert run("key", "create", "--tenant", "acme", "--subject", "x").exit_code == 0
    refused = run("key", "create", "--tenant", "unknown", "--subject", "x")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("gatehouse: there is no tenant unknown (known: acme, default);")
    assert run("key", "list", "--tenant", "unknown").exit_code == 1


@pytest.mark.parametrize(
    "options",
    [(), ("--subject", "a", "--service", "b"), ("--subject", "a", "--expires", "soon")],
)
def test_key_without_principal_or_with_invalid_expiry_is_rejected(run: Run, options: tuple[str, ...]) -> None:
    result = run("key", "create", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1


def test_unusable_data_folder_is_reported_on_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".gatehouse").touch()
    result = run("key", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"gatehouse: {tmp_path / '.gatehouse'}: ")
    assert len(result.stderr.splitlines()) == 1


def test_commands_without_backends_accept_unset_backend_variables(run: Run, tmp_path: Path) -> None:
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
