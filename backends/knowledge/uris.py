"""The URIs of the memory."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote

from backends.knowledge.unit_of_work import EntityType
from gateway.errors import Fault, Kind

ENTRIES: Final = "knowledge://entries"
TRIPLES: Final = "knowledge://graph/triples"
ENTITIES: Final = "knowledge://graph/entities"
TRANSACTIONS: Final = "knowledge://history/transactions"
CONFLICTS: Final = "knowledge://conflicts"
INGESTIONS: Final = "knowledge://ingestions"

_MAX_FIELDS: Final = 64

LISTS: Final[dict[EntityType, str]] = {"entry": ENTRIES, "triple": TRIPLES, "entity": ENTITIES}

_ADDRESS: Final = re.compile(
    rf"({'|'.join(map(re.escape, (ENTRIES, TRIPLES, ENTITIES, TRANSACTIONS, CONFLICTS, INGESTIONS)))})"
    r"(?:/([^/?#]+))?(?:\?([^#]*))?"
)


@dataclass(frozen=True, slots=True)
class Address:
    base: str
    id: str | None
    asked: dict[str, list[str]]

    def first(self, name: str) -> str | None:
        return self.asked[name][0] if name in self.asked else None


def parse(uri: str) -> Address | None:
    """None for what is no address of the memory. Raises `Fault(TOO_LARGE)` for one that asks too much at once."""
    match = _ADDRESS.fullmatch(uri)
    if match is None:
        return None
    base, id_, asked = match.groups()
    if asked and (fields := asked.count("&") + 1) > _MAX_FIELDS:
        message = f"An address of the memory has at most {_MAX_FIELDS} parts after the question mark."
        raise Fault(Kind.TOO_LARGE, message, details={"found": fields, "most": _MAX_FIELDS})
    return Address(base, unquote(id_) if id_ else None, parse_qs(asked or ""))


def of(kind: EntityType, id_: str) -> str:
    return f"{LISTS[kind]}/{id_}"
