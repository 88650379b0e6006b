"""The memory to be read: lists in pages, and single things by their address."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sqlalchemy import select

from backends.knowledge import conflicts, history, ingest, ledger, uris
from backends.knowledge.entries import with_entity
from backends.knowledge.paging import Listing, Page, newest_first
from backends.knowledge.row_mapping import entity_from
from backends.knowledge.search.graph_query import query_graph
from backends.knowledge.search.query import query
from backends.knowledge.tables import entities
from backends.knowledge.tool_results import JSON_TYPE
from backends.knowledge.unit_of_work import Book, EntityType
from backends.knowledge.uris import Address
from gateway.contract import Json
from gateway.errors import UnknownName

VERSION: Final = 1
"""Of the shape of what a read answers."""
_LIMIT: Final = 50
_MOST: Final = 200


def _listed(uri: str, name: str, title: str, description: str) -> Json:
    # `version` is not a field that SDK clients know, so they find it in `_meta`.
    shown = {"uri": uri, "name": name, "title": title, "description": description, "mimeType": JSON_TYPE}
    return {**shown, "version": VERSION, "_meta": {"version": VERSION}}


RESOURCES: Final = (
    _listed(uris.ENTRIES, "entries", "Entries", "All entries of the memory, newest first."),
    _listed(uris.TRIPLES, "triples", "Triples", "All facts of the graph, newest first."),
    _listed(uris.ENTITIES, "entities", "Entities", "All entities with their aliases, newest first."),
    _listed(uris.TRANSACTIONS, "transactions", "Transactions", "All changes of the memory, newest first."),
)


def _template(uri: str, name: str, description: str) -> Json:
    return {"uriTemplate": uri, "name": name, "description": description, "mimeType": JSON_TYPE}


TEMPLATES: Final = (
    _template(
        f"{uris.ENTRIES}{{?topic,content,tags*,as_of,limit,cursor}}", "entries-page", "Entries, searched, by page."
    ),
    _template(
        f"{uris.TRIPLES}{{?subject,predicate,object,as_of,limit,cursor}}",
        "triples-page",
        "Triples, searched, by page.",
    ),
    _template(f"{uris.ENTITIES}{{?limit,cursor}}", "entities-page", "Entities, by page."),
    _template(f"{uris.TRANSACTIONS}{{?limit,cursor}}", "transactions-page", "Transactions, by page."),
    _template(f"{uris.ENTRIES}/{{id}}", "entry", "One entry."),
    _template(f"{uris.TRIPLES}/{{id}}", "triple", "One triple."),
    _template(f"{uris.ENTITIES}/{{id}}", "entity", "One entity."),
    _template(f"{uris.TRANSACTIONS}/{{id}}", "transaction", "One transaction with its snapshots."),
    _template(f"{uris.CONFLICTS}/{{id}}", "conflict", "One contradiction that waits to be settled."),
    _template(f"{uris.INGESTIONS}/{{id}}", "ingestion", "How far the ingestion of a text has come."),
)


async def read(book: Book, uri: str) -> Json:
    """The result of `resources/read`. Raises `UnknownName`."""
    address = uris.parse(uri)
    if address is None:
        raise _unknown(uri)
    page = await _page(book, address) if address.id is None else await _one(book, address, uri)
    body = {"resource_uri": uri, "as_of_tx_id": await book.last_transaction(), **page.as_json()}
    content = {"uri": uri, "mimeType": JSON_TYPE, "text": json.dumps(body, ensure_ascii=False)}
    return {"contents": [content]}


# ---- lists --------------------------------------------------------------------------------------------------------


async def _page(book: Book, address: Address) -> Page:
    asked: Json = {"limit": _limit(address.first("limit")), "cursor": address.first("cursor")}
    # A list holds everything, whenever it is valid, unless the address says otherwise.
    asked["as_of"] = address.first("as_of") or "any"
    match address.base:
        case uris.ENTRIES:
            words = {name: address.first(name) for name in ("topic", "content")}
            return await query(book, {**asked, **words, "tags": address.asked.get("tags")})
        case uris.TRIPLES:
            return await query_graph(book, {**asked, **{part: address.first(part) for part in _PARTS}})
        case uris.ENTITIES:
            return await newest_first(book, _LIVING_ENTITIES, entity_from, asked["limit"], asked["cursor"])
        case uris.TRANSACTIONS:
            return await history.outlines(book, asked["limit"], asked["cursor"])
        case _:
            raise _unknown(address.base)


_LIVING_ENTITIES: Final = Listing.of(select(entities).where(entities.c.deleted_at.is_(None)), entities)
_PARTS: Final = ("subject", "predicate", "object")


def _limit(given: str | None) -> int:
    """Whatever is not a number means the default; a number is brought into range."""
    if given is None or not given.lstrip("-").isdecimal():
        return _LIMIT
    return min(max(int(given[:9]), 1), _MOST)


# ---- one thing ----------------------------------------------------------------------------------------------------


async def _one(book: Book, address: Address, uri: str) -> Page:
    found = await _FINDERS[address.base](book, address.id or "")
    if found is None:
        raise _unknown(uri)
    return Page([found], None)


async def _entry(book: Book, id_: str) -> Json | None:
    found = await ledger.find(book, "entry", id_)
    return await with_entity(book, found) if found is not None else None


def _living(kind: EntityType) -> Callable[[Book, str], Awaitable[Json | None]]:
    async def finder(book: Book, id_: str) -> Json | None:
        return await ledger.find(book, kind, id_)

    return finder


_FINDERS: Final[dict[str, Callable[[Book, str], Awaitable[Any]]]] = {
    uris.ENTRIES: _entry,
    uris.TRIPLES: _living("triple"),
    uris.ENTITIES: _living("entity"),
    uris.TRANSACTIONS: history.one,
    uris.CONFLICTS: conflicts.find,
    uris.INGESTIONS: ingest.find,
}


def _unknown(uri: str) -> UnknownName:
    return UnknownName(f"Unknown resource: {uri[:128]}", uri=uri)
