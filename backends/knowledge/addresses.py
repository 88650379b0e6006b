"""The URIs of the memory."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote

from backends.knowledge.book import EntityType

ENTRIES: Final = "knowledge://entries"
TRIPLES: Final = "knowledge://graph/triples"
ENTITIES: Final = "knowledge://graph/entities"
TRANSACTIONS: Final = "knowledge://history/transactions"
CONFLICTS: Final = "knowledge://conflicts"
INGESTIONS: Final = "knowledge://ingestions"

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
    match = _ADDRESS.fullmatch(uri)
    if match is None:
        return None
    base, id_, asked = match.groups()
    return Address(base, unquote(id_) if id_ else None, parse_qs(asked or "", max_num_fields=64))


def of(kind: EntityType, id_: str) -> str:
    return f"{LISTS[kind]}/{id_}"
