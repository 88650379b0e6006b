"""Stored lists, pins, and replicas that load what one of them has read."""

import asyncio
from collections.abc import Mapping

from gateway.catalogue.catalogue import FIRST_READ_SECONDS, Catalogue, McpEndpointConfig
from gateway.catalogue.list_format import ListFormat
from gateway.catalogue.persistence import (
    StoredListing,
    changed_parts,
    compute_pin,
    decode_lists,
    encode_lists,
    pin_digest,
)
from gateway.contract import BackendLists, Caller, Json
from gateway.policy.decisions import Authorizer
from gateway.state.bus import MemoryBus
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, ECHO, POLICIES, FakeBackend, until


class SharedStore:
    """An in-memory store that several catalogues share."""

    def __init__(self) -> None:
        self.lists: dict[tuple[str, str], StoredListing] = {}

    async def load(self, namespace: str, owner: str, origin: str) -> StoredListing | None:
        return self.lists.get((namespace, origin))

    async def save(self, namespace: str, owner: str, origin: str, listing: StoredListing) -> None:
        self.lists[namespace, origin] = listing

    denies_changes = False

    async def save_pins(
        self, namespace: str, owner: str, definitions: Mapping[str, Json]
    ) -> Mapping[str, tuple[str, ...]]:
        return {}

    async def list_accepted(self, namespace: str, owner: str) -> Mapping[str, frozenset[str]] | None:
        return None


class OtherWorker:
    """The bus as seen by another worker."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.worker = "other"

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)


def make_catalogue(store: SharedStore, bus: object) -> Catalogue:
    catalogue = Catalogue(Authorizer({"acme": Tenant("acme")}.get, POLICIES), ListFormat(), 60, store, bus)  # type: ignore[arg-type]
    catalogue.set_endpoints({"/mcp": McpEndpointConfig("/mcp", "underscore")})
    return catalogue


def names(catalogue: Catalogue) -> set[str]:
    view = catalogue.view(ALICE, "/mcp")
    assert view is not None
    return {route.name for route in view.tools.values()}


async def test_lists_read_by_one_replica_are_loaded_by_the_others_without_a_read() -> None:
    store, bus = SharedStore(), MemoryBus()
    one, two = make_catalogue(store, bus), make_catalogue(store, OtherWorker(bus))
    first, second = FakeBackend("a", trusted=False), FakeBackend("a", trusted=False)
    await one.add(first)
    await two.add(second)
    following = asyncio.create_task(two.follow_replicas())
    await until(lambda: second.fetch_count)
    fetches_before = second.fetch_count
    first.lists = BackendLists(tools=({**ECHO, "name": "new"},), capabilities={"tools": {}})
    notified = asyncio.Event()
    two.on_change(lambda _namespace, _change: notified.set())
    await one.refresh(first)
    await asyncio.wait_for(notified.wait(), 5)
    assert names(two) == {"new"}
    assert second.fetch_count == fetches_before
    following.cancel()


async def test_one_replica_reads_per_interval() -> None:
    store, bus = SharedStore(), MemoryBus()
    backends = [FakeBackend("a", trusted=False) for _ in range(3)]
    catalogues = [make_catalogue(store, bus) for _ in backends]
    for each, backend in zip(catalogues, backends, strict=True):
        await each.add(backend)
    await until(lambda: all(backend.fetch_count for backend in backends))
    before = sum(backend.fetch_count for backend in backends)
    await asyncio.gather(*(each.refresh_remote(60) for each in catalogues))
    assert sum(backend.fetch_count for backend in backends) == before + 1


async def test_add_does_not_wait_for_a_server_with_stored_lists() -> None:
    class Hanging(FakeBackend):
        async def fetch_lists(self, caller: Caller | None) -> BackendLists:
            await asyncio.Event().wait()
            return self.lists

    store = SharedStore()
    await make_catalogue(store, MemoryBus()).add(FakeBackend("a", trusted=False))
    catalogue = make_catalogue(store, MemoryBus())
    async with asyncio.timeout(FIRST_READ_SECONDS * 0.8):
        await catalogue.add(Hanging("a", trusted=False))
    assert names(catalogue) == {"echo"}


async def test_lists_of_a_module_are_not_stored() -> None:
    store = SharedStore()
    await make_catalogue(store, MemoryBus()).add(FakeBackend("a"))
    assert store.lists == {}


def test_encoded_lists_decode_to_the_same_value() -> None:
    lists = BackendLists(tools=(ECHO,), capabilities={"tools": {}}, instructions="ü", info={"n": 12345678901234567890})
    assert decode_lists(encode_lists(lists)) == lists
    assert decode_lists("{") is None
    assert decode_lists('{"tools": 7}') is None


def test_pin_identifies_changed_parts_and_ignores_key_order_and_meta() -> None:
    one = compute_pin({"name": "t", "description": "a", "inputSchema": {"type": "object", "x": 1}, "_meta": {"v": 1}})
    same = compute_pin({"inputSchema": {"x": 1, "type": "object"}, "_meta": {"v": 2}, "description": "a", "name": "t"})
    other = compute_pin({"name": "t", "description": "b", "inputSchema": {"type": "object", "x": 1}, "icons": []})
    assert pin_digest("a", "t", one) == pin_digest("a", "t", same)
    assert pin_digest("a", "t", one) != pin_digest("b", "t", one)
    assert changed_parts(one, other) == ("description", "icons")
