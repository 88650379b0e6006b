"""The catalogue: listings of all backends, the views built from them, and change notifications."""

import asyncio
from typing import Any

import pytest

from gateway.catalogue.catalogue import MAX_VIEWS, Catalogue, McpEndpointConfig
from gateway.catalogue.list_format import ListFormat
from gateway.catalogue.view import View
from gateway.contract import BackendLists, Caller, Json, ListChange
from gateway.errors import Fault, ForeignError, Kind
from gateway.policy.decisions import Authorizer
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, ECHO, POLICIES, Clock, FakeBackend, Rig, until


def tool(name: str) -> Json:
    return {**ECHO, "name": name}


def lists_of(*names: str) -> BackendLists:
    return BackendLists(tools=tuple(map(tool, names)), capabilities={"tools": {}})


class CatalogueHarness:
    """A catalogue with the endpoint `/mcp` that records its change notifications."""

    def __init__(self, *endpoints: McpEndpointConfig, **more: Any) -> None:
        self.tenants = {"acme": Tenant("acme"), "narrow": Tenant("narrow", backends=("a", "x-*"))}
        self.catalogue = Catalogue(Authorizer(self.tenants.get, POLICIES), ListFormat(), **more)
        self.catalogue.set_endpoints(
            {each.path: each for each in (McpEndpointConfig("/mcp", "underscore"), *endpoints)}
        )
        self.changes: list[tuple[str, ListChange]] = []
        self.catalogue.on_change(lambda namespace, change: self.changes.append((namespace, change)))

    def view(self, caller: Caller = ALICE, path: str = "/mcp") -> View:
        view = self.catalogue.view(caller, path)
        assert view is not None
        return view

    def names(self, **more: Any) -> set[str]:
        return {route.exposed for route in self.view(**more).tools.values()}


async def test_view_contains_every_backend_and_is_built_once() -> None:
    harness = CatalogueHarness()
    await harness.catalogue.add(FakeBackend("a"))
    await harness.catalogue.add(FakeBackend("b"))
    assert harness.names() == {"a_echo", "b_echo"}
    assert harness.view() is harness.view()


async def test_callers_of_the_same_tenant_share_a_view() -> None:
    harness = CatalogueHarness()
    await harness.catalogue.add(FakeBackend("a"))
    assert harness.view(ALICE) is harness.view(Caller("acme", "bob"))
    assert harness.view(ALICE) is not harness.view(Caller("narrow", "alice"))


async def test_tenant_sees_only_its_own_backends() -> None:
    harness = CatalogueHarness(McpEndpointConfig("/mcp/b", "bare", ("b",)))
    for name in ("a", "b", "x-1"):
        await harness.catalogue.add(FakeBackend(name))
    caller = Caller("narrow", "n")
    assert harness.names(caller=caller) == {"a_echo", "x-1_echo"}
    assert harness.catalogue.view(caller, "/mcp/b") is None
    assert harness.catalogue.view(ALICE, "/mcp/b") is not None


async def test_unknown_or_suspended_tenant_sees_no_tools() -> None:
    harness = CatalogueHarness()
    await harness.catalogue.add(FakeBackend("a"))
    assert harness.names(caller=Caller("unknown", "x")) == set()
    assert harness.names() == {"a_echo"}
    harness.tenants["acme"] = Tenant("acme", suspended=True)
    assert harness.names() == set()


async def test_virtual_server_lists_its_backends_in_its_order_and_name_mode() -> None:
    harness = CatalogueHarness(McpEndpointConfig("/mcp/dev", "dotted", ("b", "a", "gone")))
    for name in ("a", "b", "c"):
        await harness.catalogue.add(FakeBackend(name))
    assert harness.names(path="/mcp/dev") == {"a.echo", "b.echo"}
    assert list(harness.view(path="/mcp/dev").namespaces) == ["b", "a"]
    assert harness.catalogue.view(ALICE, "/mcp/none") is None


async def test_changed_list_is_visible_and_notified_once() -> None:
    harness = CatalogueHarness()
    backend = FakeBackend("a")
    await harness.catalogue.add(backend)
    harness.changes.clear()
    backend.lists = lists_of("other")
    backend.emit_change(ListChange("tools"))
    await until(lambda: harness.changes)
    assert harness.changes == [("a", ListChange("tools"))]
    assert harness.names() == {"a_other"}


async def test_unreported_changes_of_other_lists_are_notified_as_well() -> None:
    harness = CatalogueHarness()
    backend = FakeBackend("a")
    await harness.catalogue.add(backend)
    harness.changes.clear()
    backend.lists = BackendLists(prompts=({"name": "p"},), resources=({"uri": "x:y", "name": "y"},))
    backend.emit_change(ListChange("prompts"))
    await until(lambda: len(harness.changes) == 3)
    assert {change.kind for _, change in harness.changes} == {"prompts", "resources", "tools"}


async def test_changed_resource_is_notified_without_reading_the_lists() -> None:
    harness = CatalogueHarness()
    backend = FakeBackend("a")
    await harness.catalogue.add(backend)
    harness.changes.clear()
    fetches_before = backend.fetch_count
    backend.emit_change(ListChange("resource", "x:y"))
    assert harness.changes == [("a", ListChange("resource", "x:y"))]
    assert backend.fetch_count == fetches_before


async def test_dropped_backend_disappears_from_views_and_is_notified() -> None:
    harness = CatalogueHarness()
    await harness.catalogue.add(FakeBackend("a"))
    harness.view()
    harness.changes.clear()
    harness.catalogue.drop("a")
    harness.catalogue.drop("a")
    assert harness.names() == set()
    assert len(harness.changes) == 3


class FailingBackend(FakeBackend):
    error: Exception | None = None

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        if self.error is not None:
            raise self.error
        return await super().fetch_lists(caller)


@pytest.mark.parametrize("error", [Fault(Kind.UNAVAILABLE, "x"), ForeignError(-32603, "x"), TimeoutError()])
async def test_backend_whose_read_fails_keeps_its_last_lists_and_is_marked_degraded(error: Exception) -> None:
    harness, backend = CatalogueHarness(), FailingBackend("a")
    await harness.catalogue.add(backend)
    backend.error = error
    await harness.catalogue.refresh(backend)
    assert harness.names() == {"a_echo"}
    assert b"gatehouse/degraded" in harness.view().page("tools/list", None, "2026-07-28")
    backend.error = None
    await harness.catalogue.refresh(backend)
    assert b"gatehouse/degraded" not in harness.view().page("tools/list", None, "2026-07-28")


async def test_lists_dropped_as_stale_are_served_again_after_a_successful_read() -> None:
    harness, backend = CatalogueHarness(keep_stale=0), FailingBackend("a")
    await harness.catalogue.add(backend)
    backend.error = TimeoutError()
    await harness.catalogue.refresh(backend)
    assert harness.names() == set()
    backend.error = None
    await harness.catalogue.refresh(backend)
    assert harness.names() == {"a_echo"}


async def test_unchanged_lists_are_not_validated_again() -> None:
    harness, backend = CatalogueHarness(), FakeBackend("a")
    backend.lists = lists_of("x")
    await harness.catalogue.add(backend)
    first = harness.catalogue.snapshots["a"]
    backend.lists = lists_of("x")  # equal, but another object
    await harness.catalogue.refresh(backend)
    assert harness.catalogue.snapshots["a"] is first
    backend.lists = lists_of("x", "y")
    await harness.catalogue.refresh(backend)
    assert harness.names() == {"a_x", "a_y"}


async def test_unexpected_exception_of_one_backend_does_not_affect_other_calls() -> None:
    backend = FailingBackend("a")
    async with Rig(FakeBackend("b"), backend) as rig:
        backend.error = ValueError("defect in the module")
        rig.catalogue._read_at.clear()
        response = await rig.modern("tools/call", {"name": "b_other"})
    assert response.json["error"]["data"]["kind"] == "not_found"


async def test_background_refresh_continues_after_an_exception_of_one_backend() -> None:
    clock, harness = Clock(), CatalogueHarness()
    failing, healthy = FailingBackend("a", trusted=False), FakeBackend("b", trusted=False)
    await harness.catalogue.add(failing)
    await harness.catalogue.add(healthy)
    failing.error = ValueError("defect in the client")
    refreshing = asyncio.create_task(harness.catalogue.refresh_periodically(60))
    fetches_before = healthy.fetch_count
    for _ in range(5000):
        if healthy.fetch_count >= fetches_before + 2 or refreshing.done():
            break
        await clock.forward(61)
    assert healthy.fetch_count >= fetches_before + 2 or refreshing.done()
    await asyncio.sleep(0)
    if refreshing.done():
        await refreshing
    refreshing.cancel()


class GatedBackend(FakeBackend):
    """A backend whose reads each wait for their own gate."""

    def __init__(self) -> None:
        super().__init__("a")
        self.gates: list[asyncio.Event] = []
        self.reads_started = 0

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        lists = self.lists
        if self.reads_started < len(self.gates):
            self.reads_started += 1
            await self.gates[self.reads_started - 1].wait()
        return lists


async def test_older_read_never_overwrites_a_newer_one() -> None:
    harness, backend = CatalogueHarness(), GatedBackend()
    await harness.catalogue.add(backend)
    backend.gates = [asyncio.Event(), asyncio.Event()]
    backend.lists = lists_of("old")
    older = asyncio.create_task(harness.catalogue.refresh(backend))
    await until(lambda: backend.reads_started == 1)
    backend.lists = lists_of("new")
    newer = asyncio.create_task(harness.catalogue.refresh(backend))
    await until(lambda: backend.reads_started == 2)
    backend.gates[1].set()
    await newer
    backend.gates[0].set()
    await older
    assert harness.names() == {"a_new"}


async def test_backend_replaced_during_a_read_stays_replaced() -> None:
    harness, backend = CatalogueHarness(), GatedBackend()
    await harness.catalogue.add(backend)
    backend.gates = [asyncio.Event()]
    refreshing = asyncio.create_task(harness.catalogue.refresh(backend))
    await until(lambda: backend.reads_started)
    await harness.catalogue.add(FakeBackend("a", tools=(tool("fresh"),)))
    backend.gates[0].set()
    await refreshing
    assert harness.names() == {"a_fresh"}


async def test_lists_are_reread_at_most_once_per_second() -> None:
    harness, backend = CatalogueHarness(), FakeBackend("a")
    await harness.catalogue.add(backend)
    harness.catalogue._read_at.clear()
    fetches_before = backend.fetch_count
    assert await harness.catalogue.reread(harness.view().namespaces)
    assert not await harness.catalogue.reread(harness.view().namespaces)
    assert backend.fetch_count == fetches_before + 1


async def test_number_of_cached_views_is_limited() -> None:
    harness = CatalogueHarness()
    await harness.catalogue.add(FakeBackend("a"))
    for number in range(MAX_VIEWS + 10):
        harness.tenants[f"t{number}"] = Tenant(f"t{number}")
        harness.view(Caller(f"t{number}", "x"))
    assert len(harness.catalogue._views) == MAX_VIEWS


async def test_adding_a_slow_backend_returns_after_the_first_read_timeout() -> None:
    clock, harness, backend = Clock(), CatalogueHarness(), GatedBackend()
    backend.gates = [asyncio.Event()]
    adding = asyncio.create_task(harness.catalogue.add(backend))
    await until(lambda: backend.reads_started)
    await clock.forward(3.1)
    await asyncio.wait_for(adding, 5)
    assert harness.names() == set()
