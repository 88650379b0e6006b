import asyncio

import pytest

from gateway.errors import Fault
from gateway.state.database import Database
from gateway.state.tenants import Tenant, Tenants


async def test_what_is_named_is_set_and_the_rest_stays(database: Database) -> None:
    tenants = await Tenants.open(database)
    await tenants.apply({"a": {"backends": ["core"], "read_only": True}, "b": {}})
    await tenants.apply({"a": {"suspended": True}})
    assert tenants.get("a") == Tenant("a", read_only=True, suspended=True, backends=("core",))
    assert tenants.get("b") == Tenant("b")
    assert tenants.get("c") is None
    assert [tenant.name for tenant in tenants.all()] == ["a", "b"]


async def test_read_only_holds_when_either_settings_or_operator_say_so(database: Database) -> None:
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


async def test_tenants_outlive_the_process(database: Database, second_database: Database) -> None:
    await (await Tenants.open(database)).apply({"a": {"backends": ["core", "x"]}})
    assert (await Tenants.open(second_database)).get("a") == Tenant("a", backends=("core", "x"))


async def test_a_suspension_elsewhere_is_known_here_within_a_second(
    database: Database, second_database: Database
) -> None:
    here, elsewhere = await Tenants.open(database), await Tenants.open(second_database)
    await here.apply({"a": {}})
    told = asyncio.Event()
    here.on_change(told.set)
    await elsewhere.apply({"a": {"suspended": True}})
    async with asyncio.timeout(1):
        while here.get("a") != Tenant("a", suspended=True):
            await told.wait()
            told.clear()


async def test_one_bad_name_and_nothing_is_applied(database: Database) -> None:
    tenants = await Tenants.open(database)
    with pytest.raises(Fault, match="tenant's name"):
        await tenants.apply({"good": {}, "../bad": {}})
    assert tenants.all() == []


async def test_a_tenant_is_made_once_and_only_a_made_one_is_changed(database: Database) -> None:
    tenants = await Tenants.open(database)
    await tenants.add("a", {"backends": ["core"], "servers": ["desk"]})
    with pytest.raises(Fault, match="named a already"):
        await tenants.add("a", {"backends": ["*"]})
    with pytest.raises(Fault, match="No tenant is named b"):
        await tenants.change("b", {"suspended": True})
    assert tenants.all() == [Tenant("a", backends=("core",), servers=("desk",))]


async def test_what_did_not_change_stays_the_same_object(database: Database) -> None:
    tenants = await Tenants.open(database)
    await tenants.apply({"a": {}, "b": {}})
    before = tenants.get("a")
    await tenants.change("b", {"suspended": True})
    assert tenants.get("a") is before
