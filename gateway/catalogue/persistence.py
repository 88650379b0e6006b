"""A tool's definition in one digest, so that a change of it is noticed, and what changed can be said.

What the catalogue remembers beyond this process: the lists as they were last read, and the tools' pins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol

import msgspec

from gateway.contract import BackendLists, Json

PARTS: Final = ("title", "description", "inputSchema", "outputSchema", "annotations", "icons")

_encode: Final = msgspec.json.Encoder(order="deterministic").encode

Pin = Mapping[str, str]

"""Part of the definition -> its digest; a part that it does not have is not in it."""


def pin(definition: Json) -> Pin:
    return {part: sha256(_encode(definition[part])).hexdigest()[:32] for part in PARTS if part in definition}


def digest(namespace: str, name: str, pinned: Pin) -> str:
    """Of the whole: whose it is, what it is called, and every part."""
    return sha256(_encode([namespace, name, dict(pinned)])).hexdigest()


def changed_parts(before: Pin, after: Pin) -> tuple[str, ...]:
    """In the order a reader would look at them."""
    return tuple(part for part in PARTS if before.get(part) != after.get(part))


SHARED: Final = "shared"

"""Whose credential the lists were read with: the gateway's own, the same for everybody."""


@dataclass(frozen=True, slots=True)
class StoredListing:
    """A backend's lists, unchecked, and the unix time at which it last gave them."""

    offer: BackendLists
    good_at: float


class ListingStore(Protocol):
    """Keyed by backend and by whose credential (`shared`, `tenant:…`, `user:…`)."""

    async def recall(self, namespace: str, whose: str, origin: str) -> StoredListing | None:
        """The lists as last read from that very server; `origin` tells it from another of the same name."""
        ...

    async def keep(self, namespace: str, whose: str, origin: str, seen: StoredListing) -> None: ...

    async def pin(self, namespace: str, whose: str, pins: Mapping[str, Pin]) -> Mapping[str, tuple[str, ...]]:
        """Note the definitions; the tools whose definition is another than before, each with the parts that changed."""
        ...

    async def unpinned(self, namespace: str, whose: str) -> frozenset[str]:
        """The tools whose definition has changed and may be used only once somebody accepts it."""
        ...


class NullListingStore:
    """Remembers nothing: for a catalogue that lives in memory alone."""

    async def recall(self, namespace: str, whose: str, origin: str) -> StoredListing | None:
        return None

    async def keep(self, namespace: str, whose: str, origin: str, seen: StoredListing) -> None:
        """Not kept."""

    async def pin(self, namespace: str, whose: str, pins: Mapping[str, Pin]) -> Mapping[str, tuple[str, ...]]:
        return {}

    async def unpinned(self, namespace: str, whose: str) -> frozenset[str]:
        return frozenset()


def encoded(offer: BackendLists) -> str:
    return msgspec.json.encode(offer).decode()


def decoded(text: str) -> BackendLists | None:
    """None when an earlier release wrote it in another shape."""
    try:
        return msgspec.json.decode(text, type=BackendLists)
    except msgspec.DecodeError:
        return None
