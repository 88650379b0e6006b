"""Snapshots of every backend, and the views made of them."""

import asyncio
from typing import Any

import pytest

from gateway.catalogue.catalogue import MAX_VIEWS, Catalogue, McpEndpointConfig
from gateway.catalogue.view import ListFormat, View
from gateway.contract import BackendLists, Caller, Json, ListChange
from gateway.errors import Fault, ForeignError, Kind
from gateway.policy.decisions import Authorizer
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, ECHO, POLICIES, Clock, FakeBackend, Rig, until


def tool(name: str) -> Json:
    return {**ECHO, "name": name}


def offering(*names: str) -> BackendLists:
    return BackendLists(tools=tuple(map(tool, names)), capabilities={"tools": {}})


class House:
    """A catalogue at `/mcp`, and what it told."""

    def __init__(self, *endpoints: McpEndpointConfig, **more: Any) -> None:
        self.tenants = {"acme": Tenant("acme"), "narrow": Tenant("narrow", backends=("a", "x-*"))}
        self.catalogue = Catalogue(Authorizer(self.tenants.get, POLICIES), ListFormat(), **more)
        self.catalogue.serve({each.path: each for each in (McpEndpointConfig("/mcp", "underscore"), *endpoints)})
        self.told: list[tuple[str, ListChange]] = []
        self.catalogue.on_change(lambda namespace, change: self.told.append((namespace, change)))

    def view(self, caller: Caller = ALICE, path: str = "/mcp") -> View:
        view = self.catalogue.view(caller, path)
        assert view is not None
        return view

    def names(self, **more: Any) -> set[str]:
        return {route.exposed for route in self.view(**more).tools.values()}


async def test_a_view_has_every_backend_and_is_made_once() -> None:
    house = House()
    await house.catalogue.add(FakeBackend("a"))
    await house.catalogue.add(FakeBackend("b"))
    assert house.names() == {"a_echo", "b_echo"}
    assert house.view() is house.view()


async def test_callers_of_one_tenant_share_a_view_and_those_of_another_do_not() -> None:
    house = House()
    await house.catalogue.add(FakeBackend("a"))
    assert house.view(ALICE) is house.view(Caller("acme", "bob"))
    assert house.view(ALICE) is not house.view(Caller("narrow", "alice"))


async def test_a_tenant_sees_only_the_backends_it_has() -> None:
    house = House(McpEndpointConfig("/mcp/b", "bare", ("b",)))
    for name in ("a", "b", "x-1"):
        await house.catalogue.add(FakeBackend(name))
    caller = Caller("narrow", "n")
    assert house.names(caller=caller) == {"a_echo", "x-1_echo"}
    assert house.catalogue.view(caller, "/mcp/b") is None
    assert house.catalogue.view(ALICE, "/mcp/b") is not None


async def test_an_unknown_or_suspended_tenant_sees_nothing() -> None:
    house = House()
    await house.catalogue.add(FakeBackend("a"))
    assert house.names(caller=Caller("nobody", "x")) == set()
    assert house.names() == {"a_echo"}
    house.tenants["acme"] = Tenant("acme", suspended=True)
    assert house.names() == set()


async def test_a_virtual_server_shows_its_backends_in_its_own_way() -> None:
    house = House(McpEndpointConfig("/mcp/dev", "dotted", ("b", "a", "gone")))
    for name in ("a", "b", "c"):
        await house.catalogue.add(FakeBackend(name))
    assert house.names(path="/mcp/dev") == {"a.echo", "b.echo"}
    assert list(house.view(path="/mcp/dev").namespaces) == ["b", "a"]
    assert house.catalogue.view(ALICE, "/mcp/none") is None


async def test_a_change_of_the_lists_is_seen_and_told_once() -> None:
    house = House()
    backend = FakeBackend("a")
    await house.catalogue.add(backend)
    house.told.clear()
    backend.offered = offering("other")
    backend.say(ListChange("tools"))
    await until(lambda: house.told)
    assert house.told == [("a", ListChange("tools"))]
    assert house.names() == {"a_other"}


async def test_what_changed_besides_is_told_as_well() -> None:
    house = House()
    backend = FakeBackend("a")
    await house.catalogue.add(backend)
    house.told.clear()
    backend.offered = BackendLists(prompts=({"name": "p"},), resources=({"uri": "x:y", "name": "y"},))
    backend.say(ListChange("prompts"))
    await until(lambda: len(house.told) == 3)
    assert {change.kind for _, change in house.told} == {"prompts", "resources", "tools"}


async def test_a_resource_that_changed_is_told_without_reading_the_lists() -> None:
    house = House()
    backend = FakeBackend("a")
    await house.catalogue.add(backend)
    house.told.clear()
    read = backend.offers
    backend.say(ListChange("resource", "x:y"))
    assert house.told == [("a", ListChange("resource", "x:y"))]
    assert backend.offers == read


async def test_a_dropped_backend_is_gone_from_every_view_and_told() -> None:
    house = House()
    await house.catalogue.add(FakeBackend("a"))
    house.view()
    house.told.clear()
    house.catalogue.drop("a")
    house.catalogue.drop("a")
    assert house.names() == set()
    assert len(house.told) == 3


class Failing(FakeBackend):
    wrong: Exception | None = None

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        if self.wrong is not None:
            raise self.wrong
        return await super().fetch_lists(caller)


@pytest.mark.parametrize("wrong", [Fault(Kind.UNAVAILABLE, "x"), ForeignError(-32603, "x"), TimeoutError()])
async def test_a_backend_that_cannot_list_keeps_its_last_lists_and_says_so(wrong: Exception) -> None:
    house, backend = House(), Failing("a")
    await house.catalogue.add(backend)
    backend.wrong = wrong
    await house.catalogue.refresh(backend)
    assert house.names() == {"a_echo"}
    assert b"gatehouse/degraded" in house.view().page("tools/list", None, "2026-07-28")
    backend.wrong = None
    await house.catalogue.refresh(backend)
    assert b"gatehouse/degraded" not in house.view().page("tools/list", None, "2026-07-28")


async def test_what_was_given_up_as_too_old_is_shown_again_when_it_is_listed_as_before() -> None:
    house, backend = House(keep_stale=0), Failing("a")
    await house.catalogue.add(backend)
    backend.wrong = TimeoutError()
    await house.catalogue.refresh(backend)
    assert house.names() == set()
    backend.wrong = None
    await house.catalogue.refresh(backend)
    assert house.names() == {"a_echo"}


async def test_lists_that_are_as_they_were_are_not_checked_again() -> None:
    house, backend = House(), FakeBackend("a")
    backend.offered = offering("x")
    await house.catalogue.add(backend)
    first = house.catalogue.snapshots["a"]
    backend.offered = offering("x")  # alike, but made anew
    await house.catalogue.refresh(backend)
    assert house.catalogue.snapshots["a"] is first
    backend.offered = offering("x", "y")
    await house.catalogue.refresh(backend)
    assert house.names() == {"a_x", "a_y"}


async def test_a_backend_whose_lists_raise_anything_else_breaks_nobody() -> None:
    backend = Failing("a")
    async with Rig(FakeBackend("b"), backend) as rig:
        backend.wrong = ValueError("a defect of the module")
        rig.catalogue._read_at.clear()
        paper = await rig.modern("tools/call", {"name": "b_other"})
    assert paper.json["error"]["data"]["kind"] == "not_found"


async def test_reading_in_the_background_outlives_the_defect_of_one_backend() -> None:
    clock, house = Clock(), House()
    bad, good = Failing("a", trusted=False), FakeBackend("b", trusted=False)
    await house.catalogue.add(bad)
    await house.catalogue.add(good)
    bad.wrong = ValueError("a defect of the client")
    reading = asyncio.create_task(house.catalogue.keep_fresh(60))
    read = good.offers
    for _ in range(5000):
        if good.offers >= read + 2 or reading.done():
            break
        await clock.forward(61)
    assert good.offers >= read + 2 or reading.done()
    await asyncio.sleep(0)
    if reading.done():
        await reading
    reading.cancel()


class Slow(FakeBackend):
    """Each reading of the lists waits for its own gate."""

    def __init__(self) -> None:
        super().__init__("a")
        self.gates: list[asyncio.Event] = []
        self.begun = 0

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        offered = self.offered
        if self.begun < len(self.gates):
            self.begun += 1
            await self.gates[self.begun - 1].wait()
        return offered


async def test_an_older_reading_never_overwrites_a_newer_one() -> None:
    house, backend = House(), Slow()
    await house.catalogue.add(backend)
    backend.gates = [asyncio.Event(), asyncio.Event()]
    backend.offered = offering("old")
    older = asyncio.create_task(house.catalogue.refresh(backend))
    await until(lambda: backend.begun == 1)
    backend.offered = offering("new")
    newer = asyncio.create_task(house.catalogue.refresh(backend))
    await until(lambda: backend.begun == 2)
    backend.gates[1].set()
    await newer
    backend.gates[0].set()
    await older
    assert house.names() == {"a_new"}


async def test_a_backend_replaced_while_its_lists_are_read_does_not_come_back() -> None:
    house, backend = House(), Slow()
    await house.catalogue.add(backend)
    backend.gates = [asyncio.Event()]
    reading = asyncio.create_task(house.catalogue.refresh(backend))
    await until(lambda: backend.begun)
    await house.catalogue.add(FakeBackend("a", tools=(tool("fresh"),)))
    backend.gates[0].set()
    await reading
    assert house.names() == {"a_fresh"}


async def test_lists_are_read_again_at_most_once_a_second() -> None:
    house, backend = House(), FakeBackend("a")
    await house.catalogue.add(backend)
    house.catalogue._read_at.clear()
    read = backend.offers
    assert await house.catalogue.reread(house.view().namespaces)
    assert not await house.catalogue.reread(house.view().namespaces)
    assert backend.offers == read + 1


async def test_no_number_of_tenants_fills_the_memory() -> None:
    house = House()
    await house.catalogue.add(FakeBackend("a"))
    for number in range(MAX_VIEWS + 10):
        house.tenants[f"t{number}"] = Tenant(f"t{number}")
        house.view(Caller(f"t{number}", "x"))
    assert len(house.catalogue._views) == MAX_VIEWS


async def test_a_slow_backend_is_waited_for_a_moment_only() -> None:
    clock, house, backend = Clock(), House(), Slow()
    backend.gates = [asyncio.Event()]
    adding = asyncio.create_task(house.catalogue.add(backend))
    await until(lambda: backend.begun)
    await clock.forward(3.1)
    await asyncio.wait_for(adding, 5)
    assert house.names() == set()
