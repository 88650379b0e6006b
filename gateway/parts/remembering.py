"""The catalogue's memory, in the gateway's database."""

from collections.abc import Mapping

from gateway.catalogue.memory import Remembered, decoded, encoded
from gateway.catalogue.pins import Pin, changed_parts, digest
from gateway.state.catalogue import CatalogueRows


class Remembering:
    """`gateway.catalogue.memory.Memory`."""

    def __init__(self, rows: CatalogueRows, *, pins: bool) -> None:
        self._rows = rows
        self._pins = pins

    async def recall(self, namespace: str, whose: str, origin: str) -> Remembered | None:
        found = await self._rows.lists(namespace, whose, origin)
        offer = decoded(found[0]) if found else None
        return Remembered(offer, found[1]) if found and offer else None

    async def keep(self, namespace: str, whose: str, origin: str, seen: Remembered) -> None:
        await self._rows.put_lists(namespace, whose, origin, encoded(seen.offer), seen.good_at)

    async def pin(self, namespace: str, whose: str, pins: Mapping[str, Pin]) -> Mapping[str, tuple[str, ...]]:
        if not self._pins:
            return {}
        wanted = {tool: (digest(namespace, tool, parts), parts) for tool, parts in pins.items()}
        before = await self._rows.put_pins(namespace, whose, wanted)
        return {tool: changed_parts(was, pins[tool]) for tool, was in before.items()}
