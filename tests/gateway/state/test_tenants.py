import asyncio

import pytest

from gateway.errors import Fault
from gateway.state.database import Database
from gateway.state.tenants import Tenant, Tenants


async def test_apply_sets_named_fields_and_keeps_the_others(database: Database) -> None:
    tenants = await Tenants.open(database)
    await tenants.apply({"a": {"backends": ["core"], "read_only": True}, "b": {}})
    await tenants.apply({"a": {"suspended": True}})
    assert tenants.get("a") == Tenant("a", read_only=True, suspended=True, backends=("core",))
    assert tenants.get("b") == Tenant("b")
    assert tenants.get("c") is None
    assert [tenant.name for tenant in tenants.all()] == ["a", "b"]


async def test_tenant_is_read_only_by_settings_or_by_operator(database: Database) -> None:
    tenants = await Tenants.open(database)

    def read_only() -> bool:
        tenant = tenants.get("a")
        assert tenant is not None
        return tenant.read_only

    await tenants.add("a", {"read_only": True})
    await tenants.apply({"a": {"read_only": False}})
    assert read_only()
    await tenants.change("a", {"read_only": False})
    assert not read_only()
    await tenants.apply({"a": {"read_only": True}})
    await tenants.change("a", {"read_only": False})
    assert read_only()


async def test_tenants_are_loaded_from_the_database(database: Database, second_database: Database) -> None:
    await (await Tenants.open(database)).apply({"a": {"backends": ["core", "x"]}})
    assert (await Tenants.open(second_database)).get("a") == Tenant("a", backends=("core", "x"))


async def test_suspension_by_another_process_is_visible_within_a_second(
    database: Database, second_database: Database
) -> None:
    here, there = await Tenants.open(database), await Tenants.open(second_database)
    await here.apply({"a": {}})
    notified = asyncio.Event()
    here.on_change(notified.set)
    await there.apply({"a": {"suspended": True}})
    async with asyncio.timeout(1):
        while here.get("a") != Tenant("a", suspended=True):
            await notified.wait()
            notified.clear()


async def test_apply_with_one_invalid_name_changes_nothing(database: Database) -> None:
    tenants = await Tenants.open(database)
    with pytest.raises(Fault, match="tenant's name"):
        await tenants.apply({"valid": {}, "../invalid": {}})
    assert tenants.all() == []


async def test_duplicate_add_and_change_of_unknown_tenant_are_rejected(database: Database) -> None:
    tenants = await Tenants.open(database)
    await tenants.add("a", {"backends": ["core"], "servers": ["tools"]})
    with pytest.raises(Fault, match="named a already"):
        await tenants.add("a", {"backends": ["*"]})
    with pytest.raises(Fault, match="No tenant is named b"):
        await tenants.change("b", {"suspended": True})
    assert tenants.all() == [Tenant("a", backends=("core",), servers=("tools",))]


async def test_tenant_added_by_another_process_is_listed_by_name_and_leaves_the_others(
    database: Database, second_database: Database
) -> None:
    here, there = await Tenants.open(database), await Tenants.open(second_database)
    await here.apply({"a": {"read_only": True}, "c": {}})
    first, notified = here.get("a"), asyncio.Event()
    here.on_change(notified.set)
    await there.apply({"b": {}})
    await asyncio.wait_for(notified.wait(), 5)
    assert [tenant.name for tenant in here.all()] == ["a", "b", "c"]
    assert here.get("a") is first


async def test_unchanged_tenant_stays_the_same_object(database: Database) -> None:
    tenants = await Tenants.open(database)
    await tenants.apply({"a": {}, "b": {}})
    before = tenants.get("a")
    await tenants.change("b", {"suspended": True})
    assert tenants.get("a") is before
