"""Searching triples: each of their parts by a piece of text, or by any name of the entity it names."""

from typing import Final

from sqlalchemy import ColumnElement, or_, select

from backends.knowledge.book import Book
from backends.knowledge.keys import fold
from backends.knowledge.names import same
from backends.knowledge.paging import Page, newest_first
from backends.knowledge.search.filters import alive_at
from backends.knowledge.shelves import triple_from
from backends.knowledge.tables import triples
from gateway.contract import Json

_PARTS: Final = ("subject", "predicate", "object")
_LIMIT: Final = 50


async def query_graph(book: Book, arguments: Json) -> Page:
    """Living triples whose parts all contain what is asked for, newest first."""
    statement = select(triples).where(alive_at(book, "triples", arguments).bound())
    wanted: dict[str, list[str]] = {}
    for part in _PARTS:
        if key := fold(arguments.get(part) or ""):
            names = sorted(await same(book, key) - {key}) if part != "predicate" else []
            wanted[f"{part}_key"] = [key, *names]
            statement = statement.where(_matches(triples.c[f"{part}_key"], key, names))
    statement, order = book.index.narrow(statement, wanted)
    limit = arguments.get("limit", _LIMIT)
    return await newest_first(book, statement, triples, triple_from, limit, arguments.get("cursor"), order)


def _matches(column: ColumnElement[str], key: str, names: list[str]) -> ColumnElement[bool]:
    contains = column.contains(key, autoescape=True)
    return or_(contains, column.in_(names)) if names else contains
