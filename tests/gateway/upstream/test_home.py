"""What a module gets of the house."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import Caller, Here, Json
from gateway.errors import Fault, Kind
from gateway.upstream.home import HERE, House, ModuleHome, SilentWire
from tests.gateway.fakes import ALICE

OTHER = Caller("other", "alice")


class Shelf:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Path | None]] = []

    def store(self, tenant: str, name: str, migrations: Path | None) -> Any:
        self.asked.append((tenant, name, migrations))
        return object()

    async def tenants(self, name: str) -> tuple[str, ...]:
        return ("acme", name)


def home(folder: Path, opened: asyncio.Event | None = None, **more: Any) -> tuple[ModuleHome, Shelf]:
    shelf = Shelf()
    nothing: Any = object()

    async def invoke(caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        return {"for": caller.subject, "tool": tool, "arguments": arguments, "meta": meta}

    async def good(caller: Caller) -> bool:
        return caller.tenant == "acme"

    spawned: list[Any] = []
    house = House(
        stores=shelf, files=folder, bus=nothing, http=nothing, loopback=True, bridge=lambda namespace: nothing,
        invoke=invoke, knows=lambda caller, tool: True, good=good, spawn=spawned.append,
        opened=(opened or asyncio.Event()).wait,
    )  # fmt: skip
    given: Json = {"namespace": "lab", "options": None, "bridge": nothing, "store_name": "gox", "migrations": None}
    return ModuleHome(house=house, **{**given, **more}), shelf


def test_each_tenant_has_a_folder_of_its_own_that_is_there_and_private(tmp_path: Path) -> None:
    made, _ = home(tmp_path)
    mine, theirs = made.folder(ALICE), made.folder(OTHER)
    assert mine.is_dir()
    assert theirs.is_dir()
    assert mine.stat().st_mode & 0o077 == 0
    assert not mine.is_relative_to(theirs)
    assert not theirs.is_relative_to(mine)
    assert made.folder(ALICE) == mine


def test_the_tenants_folder_above_is_private_too(tmp_path: Path) -> None:
    folder = home(tmp_path)[0].folder(ALICE)
    assert folder.parent.stat().st_mode & 0o077 == 0


def test_a_store_is_the_tenants_and_has_the_shared_name(tmp_path: Path) -> None:
    made, shelf = home(tmp_path, migrations=tmp_path)
    made.store(ALICE)
    made.store(OTHER)
    assert shelf.asked == [("acme", "gox", tmp_path), ("other", "gox", tmp_path)]


def test_outside_of_a_call_there_is_no_here(tmp_path: Path) -> None:
    made, _ = home(tmp_path)
    with pytest.raises(LookupError):
        made.here()
    here = Here(ALICE, "cid", 1.0, {})
    token = HERE.set(here)
    assert made.here() is here
    HERE.reset(token)


async def test_tenants_are_told_once_the_house_is_open(tmp_path: Path) -> None:
    opened = asyncio.Event()
    asking = asyncio.ensure_future(home(tmp_path, opened)[0].tenants())
    await asyncio.sleep(0)
    assert not asking.done()
    opened.set()
    assert await asking == ("acme", "gox")


async def test_another_tool_is_invoked_as_the_caller_that_is_given(tmp_path: Path) -> None:
    made, _ = home(tmp_path)
    assert await made.invoke(OTHER, "a.b", {"x": 1}, {"m": 2}) == {
        "for": "alice", "tool": "a.b", "arguments": {"x": 1}, "meta": {"m": 2},
    }  # fmt: skip
    assert await made.good(ALICE)
    assert not await made.good(OTHER)


async def test_on_a_call_of_the_house_nobody_hears_and_nobody_can_be_asked() -> None:
    wire = SilentWire()
    await wire.notify("notifications/message", {})
    await wire.hang_up()
    assert wire.waited == 0.0
    with pytest.raises(Fault) as refused:
        await wire.ask({"a": {"method": "roots/list"}})
    assert refused.value.kind is Kind.UNSUPPORTED
