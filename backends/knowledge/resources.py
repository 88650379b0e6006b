"""MCP resources of the memory: paged lists and single items."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sqlalchemy import select

from backends.knowledge import conflicts, history, ingest, ledger, stats, uris
from backends.knowledge.entries import with_entity
from backends.knowledge.paging import Page, PagedQuery, fetch_page
from backends.knowledge.row_mapping import entity_from_row
from backends.knowledge.search.graph_query import query_graph
from backends.knowledge.search.query import query
from backends.knowledge.tables import entities
from backends.knowledge.tool_results import JSON_TYPE
from backends.knowledge.unit_of_work import UnitOfWork
from backends.knowledge.uris import EntityType, ResourceUri
from gateway.contract import Json
from gateway.errors import UnknownName

_DEFAULT_LIMIT: Final = 50
_MAX_LIMIT: Final = 200


async def read(unit: UnitOfWork, uri: str) -> Json:
    """Return the result of `resources/read`. Raises `UnknownName`."""
    parsed = uris.parse(uri)
    if parsed is None:
        raise _unknown(uri)
    page = await _read_list(unit, parsed) if parsed.id is None else await _read_item(unit, parsed, uri)
    body = {"resource_uri": uri, "as_of_tx_id": await unit.last_transaction(), **page.as_json()}
    content = {"uri": uri, "mimeType": JSON_TYPE, "text": json.dumps(body, ensure_ascii=False)}
    return {"contents": [content]}


def is_search(uri: str) -> bool:
    """Whether the URI searches entries by text."""
    parsed = uris.parse(uri)
    return parsed is not None and parsed.base == uris.ENTRIES and bool({"topic", "content"} & parsed.query.keys())


# ---- lists --------------------------------------------------------------------------------------------------------


async def _read_list(unit: UnitOfWork, parsed: ResourceUri) -> Page:
    arguments: Json = {"limit": _limit(parsed.first("limit")), "cursor": parsed.first("cursor")}
    # Unlike a query, a list contains items of any validity unless the URI sets `as_of`.
    arguments["as_of"] = parsed.first("as_of") or "any"
    match parsed.base:
        case uris.ENTRIES:
            words = {name: parsed.first(name) for name in ("topic", "content")}
            return await query(unit, {**arguments, **words, "tags": parsed.query.get("tags")})
        case uris.TRIPLES:
            return await query_graph(unit, {**arguments, **{part: parsed.first(part) for part in _PARTS}})
        case uris.ENTITIES:
            return await fetch_page(unit, _ACTIVE_ENTITIES, entity_from_row, arguments["limit"], arguments["cursor"])
        case uris.TRANSACTIONS:
            return await history.list_summaries(unit, arguments["limit"], arguments["cursor"])
        case uris.STATS:
            return Page([await stats.read(unit)], None)
        case _:
            raise _unknown(parsed.base)


_ACTIVE_ENTITIES: Final = PagedQuery.build(select(entities).where(entities.c.deleted_at.is_(None)), entities)
_PARTS: Final = ("subject", "predicate", "object")


def _limit(value: str | None) -> int:
    """Parse the limit: clamp a number to the allowed range, use the default for anything else."""
    if value is None or not value.lstrip("-").isdecimal():
        return _DEFAULT_LIMIT
    return min(max(int(value[:9]), 1), _MAX_LIMIT)


# ---- single items -------------------------------------------------------------------------------------------------


async def _read_item(unit: UnitOfWork, parsed: ResourceUri, uri: str) -> Page:
    finder = _FINDERS.get(parsed.base)
    found = await finder(unit, parsed.id or "") if finder is not None else None
    if found is None:
        raise _unknown(uri)
    return Page([found], None)


_ITEM_KINDS: Final[dict[str, EntityType]] = {uri: kind for kind, uri in uris.LISTS.items()}


async def check_subscribable(unit: UnitOfWork, uri: str) -> None:
    """Raise `UnknownName` for a URI that addresses nothing. A deleted item can be subscribed to: undo restores it."""
    parsed = uris.parse(uri)
    if parsed is None or (parsed.id is None and parsed.base in (uris.CONFLICTS, uris.INGESTIONS)):
        raise _unknown(uri)
    if parsed.id is None:
        return
    if (kind := _ITEM_KINDS.get(parsed.base)) is not None:
        if not await ledger.exists(unit, kind, parsed.id):
            raise _unknown(uri)
        return
    await _read_item(unit, parsed, uri)


async def _find_entry(unit: UnitOfWork, id_: str) -> Json | None:
    found = await ledger.find(unit, "entry", id_)
    return await with_entity(unit, found) if found is not None else None


def _finder_for(kind: EntityType) -> Callable[[UnitOfWork, str], Awaitable[Json | None]]:
    async def finder(unit: UnitOfWork, id_: str) -> Json | None:
        return await ledger.find(unit, kind, id_)

    return finder


_FINDERS: Final[dict[str, Callable[[UnitOfWork, str], Awaitable[Any]]]] = {
    uris.ENTRIES: _find_entry,
    uris.TRIPLES: _finder_for("triple"),
    uris.ENTITIES: _finder_for("entity"),
    uris.TRANSACTIONS: history.find,
    uris.CONFLICTS: conflicts.find,
    uris.INGESTIONS: ingest.find,
}


def _unknown(uri: str) -> UnknownName:
    return UnknownName(f"Unknown resource: {uri[:128]}", uri=uri)
