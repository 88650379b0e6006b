"""A tool's definition in one digest, so that a change of it is noticed, and what changed can be said."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

from gateway.contract import Json

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
