"""Builds and parses the `knowledge://` URIs of lists and single items."""

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qs, unquote

from gateway.errors import Fault, Kind

EntityType = Literal["entry", "triple", "entity"]
ENTRIES: Final = "knowledge://entries"
TRIPLES: Final = "knowledge://graph/triples"
ENTITIES: Final = "knowledge://graph/entities"
TRANSACTIONS: Final = "knowledge://history/transactions"
CONFLICTS: Final = "knowledge://conflicts"
INGESTIONS: Final = "knowledge://ingestions"
STATS: Final = "knowledge://stats"

_MAX_QUERY_FIELDS: Final = 64

LISTS: Final[dict[EntityType, str]] = {"entry": ENTRIES, "triple": TRIPLES, "entity": ENTITIES}

_PATTERN: Final = re.compile(
    rf"({'|'.join(map(re.escape, (ENTRIES, TRIPLES, ENTITIES, TRANSACTIONS, CONFLICTS, INGESTIONS, STATS)))})"
    r"(?:/([^/?#]+))?(?:\?([^#]*))?"
)


@dataclass(frozen=True, slots=True)
class ResourceUri:
    """A parsed `knowledge://` URI. `id` is None when the URI addresses a list."""

    base: str
    id: str | None
    query: dict[str, list[str]]

    def first(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        return self.query[name][0] if name in self.query else None


def parse(uri: str) -> ResourceUri | None:
    """Parse a URI. Returns None for an unknown URI; raises `Fault(TOO_LARGE)` for too many query parameters."""
    match = _PATTERN.fullmatch(uri)
    if match is None:
        return None
    base, id_, query = match.groups()
    if query and (fields := query.count("&") + 1) > _MAX_QUERY_FIELDS:
        message = f"A knowledge:// URI may have at most {_MAX_QUERY_FIELDS} query parameters."
        raise Fault(Kind.TOO_LARGE, message, details={"found": fields, "most": _MAX_QUERY_FIELDS})
    return ResourceUri(base, unquote(id_) if id_ else None, parse_qs(query or ""))


def list_of(uri: str) -> str:
    """Return the URI of the list that the item with this URI is in; a list's own URI without its query."""
    match = _PATTERN.fullmatch(uri)
    return match[1] if match is not None else uri


def item_uri(kind: EntityType, id_: str) -> str:
    return f"{LISTS[kind]}/{id_}"
