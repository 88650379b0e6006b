"""Searching triples: each of their parts by a piece of text, or by any name of the entity it names."""

from functools import lru_cache
from typing import Final

from sqlalchemy import ColumnElement, bindparam, or_, select

from backends.knowledge.entity_names import same
from backends.knowledge.paging import Listing, Page, newest_first
from backends.knowledge.row_mapping import triple_from
from backends.knowledge.search.filters import alive_at
from backends.knowledge.search.index import Shortcut
from backends.knowledge.sql import like, statement
from backends.knowledge.tables import triples
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import Book
from gateway.contract import Json

_PARTS: Final = ("subject", "predicate", "object")
_LIMIT: Final = 50


async def query_graph(book: Book, arguments: Json) -> Page:
    """Living triples whose parts all contain what is asked for, newest first."""
    alive = alive_at(book, "triples", arguments)
    values: Json = {**alive.values}
    wanted: dict[str, list[str]] = {}
    for part in _PARTS:
        if key := fold(arguments.get(part) or ""):
            names = sorted(await same(book, key) - {key}) if part != "predicate" else []
            wanted[f"{part}_key"] = [key, *names]
            values |= {f"{part}_key_like": like(key), f"{part}_key_names": names}
    shortcut, match = book.index.narrow(wanted) or (None, {})
    listing = _listing(alive.sql, tuple((column, len(keys) > 1) for column, keys in wanted.items()), shortcut)
    limit = arguments.get("limit", _LIMIT)
    return await newest_first(book, listing, triple_from, limit, arguments.get("cursor"), values | match)


@lru_cache(maxsize=128)
def _listing(alive: str, wanted: tuple[tuple[str, bool], ...], shortcut: Shortcut | None) -> Listing:
    """Of the columns that are asked about, each with whether it may also equal other names."""
    found = select(triples).where(statement(alive), *(_matches(column, named=named) for column, named in wanted))
    if shortcut is None:
        return Listing.of(found, triples)
    joined = found.select_from(shortcut.source).where(shortcut.condition)
    return Listing.of(joined, triples, order=shortcut.order)


def _matches(column: str, *, named: bool) -> ColumnElement[bool]:
    key = triples.c[column]
    contains = key.like(bindparam(f"{column}_like"), escape="/")
    return or_(contains, key.in_(bindparam(f"{column}_names", expanding=True))) if named else contains
