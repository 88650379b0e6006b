"""The catalogue's memory, in the gateway's database."""

import logging
from collections.abc import Callable, Mapping
from typing import Literal

from gateway.catalogue.memory import Remembered, decoded, encoded
from gateway.catalogue.pins import Pin, changed_parts, digest
from gateway.errors import Fault
from gateway.state.catalogue import CatalogueRows, Listed

log = logging.getLogger("gatehouse.catalogue")

Pins = Literal["warn", "deny", "off"]


class Remembering:
    """`gateway.catalogue.memory.Memory`."""

    def __init__(self, rows: CatalogueRows, pins: Pins) -> None:
        self._rows = rows
        self._pins: Pins = pins
        self._seen: dict[Listed, frozenset[str]] = {}

    async def recall(self, namespace: str, whose: str, origin: str) -> Remembered | None:
        found = await self._rows.lists(namespace, whose, origin)
        offer = decoded(found[0]) if found else None
        return Remembered(offer, found[1]) if found and offer else None

    async def keep(self, namespace: str, whose: str, origin: str, seen: Remembered) -> None:
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
