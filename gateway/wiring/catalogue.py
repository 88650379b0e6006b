"""Connects the catalogue to the database, to the settings, and to the other workers."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.list_format import ListFormat
from gateway.catalogue.persistence import (
    StoredListing,
    changed_parts,
    compute_pin,
    decode_lists,
    definition_text,
    encode_lists,
    pin_digest,
)
from gateway.contract import Backend, Json, ListChange
from gateway.errors import Fault
from gateway.protocol.sealed_tokens import SealedCursorCodec, TokenSeal
from gateway.protocol.subscriptions import Subscriptions
from gateway.protocol.worker_events import WorkerEvents
from gateway.settings import Settings
from gateway.state.catalogue_rows import CatalogueRows, ListKey, PinnedDefinition
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.peers.service import BROADCAST

log = logging.getLogger("gatehouse.catalogue")
Pins = Literal["warn", "deny", "off"]


class DatabaseListingStore:
    """Implements `gateway.catalogue.persistence.ListingStore` on the gateway's database."""

    def __init__(self, rows: CatalogueRows, pins: Pins) -> None:
        self._rows = rows
        self._pins: Pins = pins
        self.denies_changes = pins == "deny"
        self._seen: dict[ListKey, frozenset[str]] = {}

    async def load(self, namespace: str, owner: str, origin: str) -> StoredListing | None:
        found = await self._rows.get_lists(namespace, owner, origin)
        lists = decode_lists(found[0]) if found else None
        return StoredListing(lists, found[1]) if found and lists else None

    async def save(self, namespace: str, owner: str, origin: str, listing: StoredListing) -> None:
        await self._rows.save_lists(namespace, owner, origin, encode_lists(listing.lists), listing.read_at)

    async def save_pins(
        self, namespace: str, owner: str, definitions: Mapping[str, Json]
    ) -> Mapping[str, tuple[str, ...]]:
        if self._pins == "off":
            return {}
        try:
            return await self._changes(namespace, owner, definitions)
        except Fault as fault:
            if self.denies_changes:
                raise
            log.warning("catalogue %s: pins not checked, definitions served: %s", namespace, fault.message)
            return {}

    async def _changes(
        self, namespace: str, owner: str, definitions: Mapping[str, Json]
    ) -> Mapping[str, tuple[str, ...]]:
        read = {tool: _pinned_definition(namespace, tool, each) for tool, each in definitions.items()}
        before = await self._rows.save_pins(namespace, owner, read)
        return {tool: changed_parts(was, read[tool].parts) for tool, was in before.items()}

    async def list_accepted(self, namespace: str, owner: str) -> Mapping[str, frozenset[str]] | None:
        return await self._rows.list_accepted(namespace, owner) if self.denies_changes else None

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` within a second after an operator accepted a definition or another process found a change."""
        if not self.denies_changes:
            return
        self._seen = await self._rows.list_unpinned()

        async def look() -> None:
            now = await self._rows.list_unpinned()
            if now != self._seen:
                self._seen = now
                changed()

        await self._rows.follow_pins(look)


def _pinned_definition(namespace: str, tool: str, definition: Json) -> PinnedDefinition:
    parts = compute_pin(definition)
    return PinnedDefinition(pin_digest(namespace, tool, parts), parts, definition_text(definition))


def list_format(settings: Settings, seal: TokenSeal, server_info: Json) -> ListFormat:
    return ListFormat(
        max_length=settings.names.max_length,
        client_prefix_budget=settings.names.client_prefix_budget,
        deadline=settings.calls.deadline,
        page_size=settings.catalogue.page_size,
        ttl=settings.catalogue.ttl,
        server_info=server_info,
        task_patterns=settings.tasks.tools,
        cursors=SealedCursorCodec(seal),
    )


class ListChanges:
    """Sends list changes of this worker to the other workers, and theirs to this worker's clients."""

    def __init__(
        self,
        catalogue: Catalogue,
        subscriptions: Subscriptions,
        worker_events: WorkerEvents,
        backend: Callable[[str], Backend | None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._catalogue = catalogue
        self._subscriptions = subscriptions
        self._worker_events = worker_events
        self._backend = backend
        self._spawn = spawn
        catalogue.on_change(subscriptions.publish)
        worker_events.subscribe("change", self._receive)

    def publish(self, namespace: str, change: ListChange) -> None:
        """Publish a module's change to the other workers. Remote servers and bridge peers notify every worker."""
        if (here := CURRENT_CALL.get(None)) is not None and BROADCAST in here.meta:
            return
        self._spawn(self._worker_events.publish("change", {"namespace": namespace, "change": list(change)}))

    def publish_policy_change(self) -> None:
        """Notify all clients that their lists may have changed."""
        for namespace in self._catalogue.snapshots:
            self._subscriptions.publish(namespace, ListChange("tools"))

    def _receive(self, about: Json) -> None:
        namespace, change = about["namespace"], ListChange(*about["change"])
        backend = self._backend(namespace)
        if change.kind in ("resource", "task"):
            self._subscriptions.publish(namespace, change)
        elif backend is not None:
            self._spawn(self._catalogue.refresh(backend, change))
