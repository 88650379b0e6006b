"""State of the catalogue that outlives the process: the last lists of each backend, and the pins of its tools.

A pin holds one digest per part of a tool's definition, so that a change is detected and its parts can be named.
`gateway.wiring.catalogue` implements `ListingStore` on the database.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol

import msgspec

from gateway.contract import BackendLists, Json

PINNED_PARTS: Final = ("title", "description", "inputSchema", "outputSchema", "annotations", "icons")
_encode: Final = msgspec.json.Encoder(order="deterministic").encode
Pin = Mapping[str, str]
"""Digest by part of the definition; absent parts are left out."""


def compute_pin(definition: Json) -> Pin:
    return {part: sha256(_encode(definition[part])).hexdigest()[:32] for part in PINNED_PARTS if part in definition}


def definition_text(definition: Json) -> str:
    """The pinned parts of a definition as JSON, one part a line, for comparison by an operator."""
    parts = {part: definition[part] for part in PINNED_PARTS if part in definition}
    return msgspec.json.format(_encode(parts), indent=2).decode()


def pin_digest(namespace: str, name: str, pin: Pin) -> str:
    """One digest over namespace, name and all parts."""
    return sha256(_encode([namespace, name, dict(pin)])).hexdigest()


def changed_parts(before: Pin, after: Pin) -> tuple[str, ...]:
    """The parts that differ, in the order of `PINNED_PARTS`."""
    return tuple(part for part in PINNED_PARTS if before.get(part) != after.get(part))


SHARED: Final = "shared"
"""Owner of lists that were read with the gateway's own credential."""


@dataclass(frozen=True, slots=True)
class StoredListing:
    """A backend's lists, not validated, and the Unix time of the last read."""

    lists: BackendLists
    read_at: float


class ListingStore(Protocol):
    """Stores lists and pins by namespace and owner (`shared`, `tenant:…`, `user:…`)."""

    @property
    def denies_changes(self) -> bool:
        """Whether a changed definition is served only once it is accepted."""
        ...

    async def load(self, namespace: str, owner: str, origin: str) -> StoredListing | None:
        """The lists last read from this server. `origin` distinguishes it from others with the same name."""
        ...

    async def save(self, namespace: str, owner: str, origin: str, listing: StoredListing) -> None: ...

    async def save_pins(
        self, namespace: str, owner: str, definitions: Mapping[str, Json]
    ) -> Mapping[str, tuple[str, ...]]:
        """Save the definitions that were read. Returns the tools that changed, with the changed parts."""
        ...

    async def list_accepted(self, namespace: str, owner: str) -> Mapping[str, frozenset[str]] | None:
        """The accepted digests (`pin_digest`) of each tool. None if changed definitions may be served."""
        ...


class NullListingStore:
    """Stores nothing. For a catalogue that exists in memory only."""

    denies_changes = False

    async def load(self, namespace: str, owner: str, origin: str) -> StoredListing | None:
        return None

    async def save(self, namespace: str, owner: str, origin: str, listing: StoredListing) -> None:
        """Discards the lists."""

    async def save_pins(
        self, namespace: str, owner: str, definitions: Mapping[str, Json]
    ) -> Mapping[str, tuple[str, ...]]:
        return {}

    async def list_accepted(self, namespace: str, owner: str) -> Mapping[str, frozenset[str]] | None:
        return None


def encode_lists(lists: BackendLists) -> str:
    return msgspec.json.encode(lists).decode()


def decode_lists(text: str) -> BackendLists | None:
    """None if the text has the format of an earlier release."""
    try:
        return msgspec.json.decode(text, type=BackendLists)
    except msgspec.DecodeError:
        return None
