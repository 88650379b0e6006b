"""Replicas: one reads, the others take over what it found."""

import asyncio
from collections.abc import Mapping

from gateway.catalogue.catalogue import FIRST_OFFER_SECONDS, Catalogue, McpEndpointConfig
from gateway.catalogue.persistence import Pin, StoredListing, changed_parts, decoded, digest, encoded, pin
from gateway.catalogue.view import ListFormat
from gateway.contract import BackendLists, Caller
from gateway.policy.decisions import Authorizer
from gateway.state.bus import MemoryBus
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, ECHO, POLICIES, FakeBackend, until


class Shared:
    """A memory that two catalogues have in common."""

    def __init__(self) -> None:
        self.lists: dict[tuple[str, str], StoredListing] = {}

    async def recall(self, namespace: str, whose: str, origin: str) -> StoredListing | None:
        return self.lists.get((namespace, origin))

    async def keep(self, namespace: str, whose: str, origin: str, seen: StoredListing) -> None:
        self.lists[namespace, origin] = seen

    async def pin(self, namespace: str, whose: str, pins: Mapping[str, Pin]) -> Mapping[str, tuple[str, ...]]:
        return {}

    async def unpinned(self, namespace: str, whose: str) -> frozenset[str]:
        return frozenset()


class OtherWorker:
    """The same bus, as another worker sees it."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.worker = "other"

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)


def catalogue(memory: Shared, bus: object) -> Catalogue:
    made = Catalogue(Authorizer({"acme": Tenant("acme")}.get, POLICIES), ListFormat(), 60, memory, bus)  # type: ignore[arg-type]
    made.serve({"/mcp": McpEndpointConfig("/mcp", "underscore")})
    return made


def names(made: Catalogue) -> set[str]:
    view = made.view(ALICE, "/mcp")
    assert view is not None
    return {route.name for route in view.tools.values()}


async def test_what_one_replica_reads_the_others_take_over_without_asking() -> None:
    memory, bus = Shared(), MemoryBus()
    one, two = catalogue(memory, bus), catalogue(memory, OtherWorker(bus))
    first, second = FakeBackend("a", trusted=False), FakeBackend("a", trusted=False)
    await one.add(first)
    await two.add(second)
    hearing = asyncio.create_task(two.hear_replicas())
    await until(lambda: second.offers)
    asked = second.offers
    first.offered = BackendLists(tools=({**ECHO, "name": "new"},), capabilities={"tools": {}})
    told = asyncio.Event()
    two.on_change(lambda _namespace, _change: told.set())
    await one.refresh(first)
    await asyncio.wait_for(told.wait(), 5)
    assert names(two) == {"new"}
    assert second.offers == asked
    hearing.cancel()


async def test_each_turn_one_replica_reads_and_the_others_do_not() -> None:
    memory, bus = Shared(), MemoryBus()
    backends = [FakeBackend("a", trusted=False) for _ in range(3)]
    made = [catalogue(memory, bus) for _ in backends]
    for each, backend in zip(made, backends, strict=True):
        await each.add(backend)
    await until(lambda: all(backend.offers for backend in backends))
    before = sum(backend.offers for backend in backends)
    await asyncio.gather(*(each.turn(60) for each in made))
    assert sum(backend.offers for backend in backends) == before + 1


async def test_a_server_that_was_seen_before_is_not_waited_for() -> None:
    class Hanging(FakeBackend):
        async def fetch_lists(self, caller: Caller | None) -> BackendLists:
            await asyncio.Event().wait()
            return self.offered

    memory = Shared()
    await catalogue(memory, MemoryBus()).add(FakeBackend("a", trusted=False))
    made = catalogue(memory, MemoryBus())
    async with asyncio.timeout(FIRST_OFFER_SECONDS * 0.8):
        await made.add(Hanging("a", trusted=False))
    assert names(made) == {"echo"}


async def test_a_backend_of_this_process_is_not_remembered() -> None:
    memory = Shared()
    await catalogue(memory, MemoryBus()).add(FakeBackend("a"))
    assert memory.lists == {}


def test_lists_are_the_same_when_they_come_back() -> None:
    offer = BackendLists(tools=(ECHO,), capabilities={"tools": {}}, instructions="ü", info={"n": 12345678901234567890})
    assert decoded(encoded(offer)) == offer
    assert decoded("{") is None
    assert decoded('{"tools": 7}') is None


def test_a_pin_tells_which_part_changed_and_heeds_neither_order_nor_meta() -> None:
    one = pin({"name": "t", "description": "a", "inputSchema": {"type": "object", "x": 1}, "_meta": {"v": 1}})
    same = pin({"inputSchema": {"x": 1, "type": "object"}, "_meta": {"v": 2}, "description": "a", "name": "t"})
    other = pin({"name": "t", "description": "b", "inputSchema": {"type": "object", "x": 1}, "icons": []})
    assert digest("a", "t", one) == digest("a", "t", same)
    assert digest("a", "t", one) != digest("b", "t", one)
    assert changed_parts(one, other) == ("description", "icons")
