"""The catalogue's memory, in the gateway's database.

How lists are shown, as the settings say.

Changes of what is listed: from one worker to the others, and to the clients.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.persistence import Pin, StoredListing, changed_parts, decoded, digest, encoded
from gateway.catalogue.view import ListFormat
from gateway.contract import Backend, Json, ListChange
from gateway.errors import Fault
from gateway.protocol.sealed_tokens import SealedCursorCodec, TokenSeal
from gateway.protocol.subscriptions import Subscriptions
from gateway.protocol.worker_events import WorkerEvents
from gateway.settings import Settings
from gateway.state.catalogue_rows import CatalogueRows, Listed
from gateway.upstream.bridge import EVERYWHERE
from gateway.upstream.host import CURRENT_CALL

log = logging.getLogger("gatehouse.catalogue")

Pins = Literal["warn", "deny", "off"]


class DatabaseListingStore:
    """`gateway.catalogue.persistence.Memory`."""

    def __init__(self, rows: CatalogueRows, pins: Pins) -> None:
        self._rows = rows
        self._pins: Pins = pins
        self._seen: dict[Listed, frozenset[str]] = {}

    async def recall(self, namespace: str, whose: str, origin: str) -> StoredListing | None:
        found = await self._rows.lists(namespace, whose, origin)
        offer = decoded(found[0]) if found else None
        return StoredListing(offer, found[1]) if found and offer else None

    async def keep(self, namespace: str, whose: str, origin: str, seen: StoredListing) -> None:
        await self._rows.put_lists(namespace, whose, origin, encoded(seen.offer), seen.good_at)

    async def pin(self, namespace: str, whose: str, pins: Mapping[str, Pin]) -> Mapping[str, tuple[str, ...]]:
        if self._pins == "off":
            return {}
        try:
            return await self._changes(namespace, whose, pins)
        except Fault as fault:
            if self._pins == "deny":
                raise
            log.warning("%s: its definitions could not be compared with their pins: %s", namespace, fault.message)
            return {}

    async def _changes(self, namespace: str, whose: str, pins: Mapping[str, Pin]) -> Mapping[str, tuple[str, ...]]:
        wanted = {tool: (digest(namespace, tool, parts), parts) for tool, parts in pins.items()}
        before = await self._rows.put_pins(namespace, whose, wanted, accept=self._pins == "warn")
        return {tool: changed_parts(was, pins[tool]) for tool, was in before.items()}

    async def unpinned(self, namespace: str, whose: str) -> frozenset[str]:
        if self._pins != "deny":
            return frozenset()
        return (await self._rows.unpinned()).get((namespace, whose), frozenset())

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` within a second after somebody accepted a change, or another process met one."""
        if self._pins != "deny":
            return
        self._seen = await self._rows.unpinned()

        async def look() -> None:
            now = await self._rows.unpinned()
            if now != self._seen:
                self._seen = now
                changed()

        await self._rows.follow(look)


def naming(settings: Settings, seal: TokenSeal, server_info: Json) -> ListFormat:
    return ListFormat(
        max_length=settings.names.max_length,
        client_prefix_budget=settings.names.client_prefix_budget,
        deadline=settings.calls.deadline,
        page_size=settings.catalogue.page_size,
        ttl=settings.catalogue.ttl,
        server_info=server_info,
        cursors=SealedCursorCodec(seal),
    )


class ListChanges:
    def __init__(
        self,
        catalogue: Catalogue,
        hub: Subscriptions,
        news: WorkerEvents,
        backend: Callable[[str], Backend | None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._catalogue = catalogue
        self._hub = hub
        self._news = news
        self._backend = backend
        self._spawn = spawn
        catalogue.on_change(hub.changed)
        news.on("change", self._changed_elsewhere)

    def tell_others(self, namespace: str, change: ListChange) -> None:
        """A module's change happens in one worker; a remote server tells each of them itself, as an editor does."""
        if (here := CURRENT_CALL.get(None)) is not None and EVERYWHERE in here.meta:
            return
        self._spawn(self._news.tell("change", {"namespace": namespace, "change": list(change)}))

    def tell_of_policies(self) -> None:
        """Every caller's lists may be others now."""
        for namespace in self._catalogue.snapshots:
            self._hub.changed(namespace, ListChange("tools"))

    def _changed_elsewhere(self, about: Json) -> None:
        namespace, change = about["namespace"], ListChange(*about["change"])
        backend = self._backend(namespace)
        if change.kind == "resource":
            self._hub.changed(namespace, change)
        elif backend is not None:
            self._spawn(self._catalogue.refresh(backend, change))
