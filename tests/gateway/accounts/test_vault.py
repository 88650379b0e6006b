"""The vault and the accounts in it, on both database engines."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from gateway.accounts.store import Account, AccountStore, Secret
from gateway.accounts.vault import MasterKeys, SealBroken, SealedField, Vault
from gateway.errors import Fault
from gateway.state.database import Database

MASTER = b"m" * 32


@pytest.fixture
async def database(tmp_path: Path, database_url: str | None) -> AsyncIterator[Database]:
    opened = await Database.open(tmp_path, database_url)
    yield opened
    await opened.close()


def _store(database: Database, master: MasterKeys | None = None) -> AccountStore:
    return AccountStore(database, Vault(database, master or MasterKeys(MASTER)))


def _account(tenant: str = "acme", subject: str = "alice", backend: str = "github", **more: Any) -> Account:
    values: dict[str, Any] = {
        "tenant": tenant,
        "principal": f"{tenant}/user:{subject}",
        "backend": backend,
        "kind": "oauth",
        "issuer": "https://as.example",
        "access": Secret(f"canary-access-{tenant}-{subject}-{backend}"),
        "refresh": Secret(f"canary-refresh-{tenant}-{subject}-{backend}"),
        "client": {"client_id": "c"},
        **more,
    }
    return Account(**values)


async def _dump(database: Database) -> str:
    async with database.reading() as connection:
        tables = ("accounts", "vault_keys", "account_clients")
        return "".join([repr((await connection.execute(text(f"SELECT * FROM {name}"))).all()) for name in tables])


async def test_stored_account_opens_with_its_tokens_and_the_database_holds_none_in_the_clear(
    database: Database,
) -> None:
    store = _store(database)
    await store.put(_account())
    found = await _store(database).find("acme", "acme/user:alice", "github")
    assert found is not None
    assert found.access.value == "canary-access-acme-alice-github"
    assert found.refresh is not None
    assert found.refresh.value == "canary-refresh-acme-alice-github"
    assert "canary" not in await _dump(database)
    assert "canary" not in repr(found)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("principal", "acme/user:mallory"),
        ("backend", "jira"),
        ("issuer", "https://evil.example"),
        ("version", 7),
        ("tenant", "globex"),
    ],
)
async def test_threat_57_row_copied_to_another_user_tenant_backend_issuer_or_version_does_not_open(
    database: Database, column: str, value: Any
) -> None:
    store = _store(database)
    await store.put(_account())
    await store.put(_account(tenant="globex", subject="eve"))
    async with database.transaction() as connection:
        await connection.execute(text(f"UPDATE accounts SET {column} = :value WHERE tenant = 'acme'"), {"value": value})
    row = {"tenant": "acme", "principal": "acme/user:alice", "backend": "github"}
    if column in row:
        row[column] = value
    with pytest.raises(SealBroken):
        await store.find(**row)


async def test_threat_57_sealed_value_moved_to_another_field_or_row_does_not_open(database: Database) -> None:
    store = _store(database)
    await store.put(_account())
    await store.put(_account(subject="mallory"))
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE accounts SET access = refresh WHERE principal = 'acme/user:alice'"))
        await connection.execute(
            text(
                "UPDATE accounts SET access = (SELECT refresh FROM accounts WHERE principal = 'acme/user:alice')"
                " WHERE principal = 'acme/user:mallory'"
            )
        )
    for subject in ("alice", "mallory"):
        with pytest.raises(SealBroken):
            await store.find("acme", f"acme/user:{subject}", "github")


async def test_data_key_row_copied_to_another_tenant_does_not_open(database: Database) -> None:
    vault = Vault(database, MasterKeys(MASTER))
    id = await vault.add_key("acme")
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE vault_keys SET tenant = 'globex'"))
    with pytest.raises(SealBroken):
        await Vault(database, MasterKeys(MASTER)).open(SealedField("globex", "p", "b", "i", "access", 1), f"{id}.AAAA")


async def test_other_master_key_opens_nothing_and_the_message_says_what_to_do(database: Database) -> None:
    await _store(database).put(_account())
    with pytest.raises(Fault, match="former_key_files"):
        await _store(database, MasterKeys(b"x" * 32)).find("acme", "acme/user:alice", "github")


async def test_former_master_key_opens_until_the_rotation_has_sealed_everything_again(database: Database) -> None:
    await _store(database).put(_account())
    await _store(database).put_client("github", "https://as.example", "https://gw/cb", "id", "canary-secret", "basic")
    both = MasterKeys(b"n" * 32, [MASTER])
    vault = Vault(database, both)
    store = AccountStore(database, vault)
    for tenant in await vault.tenants():
        id = await vault.add_key(tenant)
        await store.reseal(tenant)
        if not tenant:
            await store.reseal_clients()
        assert await vault.drop_keys(tenant, except_id=id) == 1
    fresh = _store(database, MasterKeys(b"n" * 32))
    found = await fresh.find("acme", "acme/user:alice", "github")
    assert found is not None
    assert found.access.value == "canary-access-acme-alice-github"
    client = await fresh.find_client("github", "https://as.example", "https://gw/cb")
    assert client is not None
    assert client[1] == Secret("canary-secret")
    assert "canary" not in await _dump(database)


async def test_one_of_two_processes_gets_the_refresh_lease_until_the_tokens_are_replaced(database: Database) -> None:
    store = _store(database)
    account = await store.put(_account())
    assert await store.take_lease(account, "one")
    assert not await store.take_lease(account, "two")
    fresh = await store.replace_tokens(account, "a2", "r2", 5.0, ("read",))
    assert fresh is not None
    assert not await store.take_lease(account, "two")  # that version is gone
    assert await store.take_lease(fresh, "two")
    assert await store.replace_tokens(account, "late", "late", 5.0, ()) is None
    found = await store.find("acme", "acme/user:alice", "github")
    assert found is not None
    assert found.access.value == "a2"


async def test_lease_of_a_dead_process_can_be_taken_once_it_has_expired(database: Database) -> None:
    now = [1000.0]
    store = AccountStore(database, Vault(database, MasterKeys(MASTER)), clock=lambda: now[0])
    account = await store.put(_account())
    assert await store.take_lease(account, "dead")
    assert await store.renew_lease(account, "dead")
    assert not await store.renew_lease(account, "alive")
    now[0] += 5
    assert await store.take_lease(account, "alive")


async def test_lists_show_accounts_of_one_principal_or_tenant_without_secrets(database: Database) -> None:
    store = _store(database)
    for tenant, subject in (("acme", "alice"), ("acme", "bob"), ("globex", "alice")):
        await store.put(_account(tenant, subject))
    assert [info.principal for info in await store.list("acme")] == ["acme/user:alice", "acme/user:bob"]
    assert [info.principal for info in await store.list("acme", "acme/user:bob")] == ["acme/user:bob"]
    assert len(await store.list()) == 3
    assert "canary" not in repr(await store.list())
