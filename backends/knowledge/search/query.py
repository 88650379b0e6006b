"""Searching entries: by words and graph with a score, or by tags alone, newest first."""

import re
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, case, func, or_, select

from backends.knowledge.book import Book
from backends.knowledge.entries import with_entities
from backends.knowledge.keys import fold, words
from backends.knowledge.paging import Page, fitting, newest_first
from backends.knowledge.search import rankings
from backends.knowledge.search.filters import listed, of_entries
from backends.knowledge.search.graph import neighbours
from backends.knowledge.search.index import Hit
from backends.knowledge.search.ranking import WITH_MEANING, WITHOUT_MEANING, Ranked, rank
from backends.knowledge.shelves import entry_from
from backends.knowledge.tables import entries
from gateway.contract import Json

_POOL: Final = 200
"""How many of the best are ranked; a search for more should be a narrower one."""
_FOUND: Final = 20
_BEGINNING: Final = 3
_PLAIN_WORDS: Final = re.compile(r"[A-Za-z0-9\s]+")
_LISTED: Final = 50


async def query(book: Book, arguments: Json) -> Page:
    text = asked(arguments)
    if not text:
        return await _listed(book, arguments)
    limit = arguments.get("limit", _FOUND)
    if (cursor := arguments.get("cursor")) is not None:
        name, ranked, start = await rankings.open_at(book, arguments, cursor)
        return await _page(book, arguments, ranked, _Place(name, start), limit)
    ranked = await _ranked(book, text, arguments)
    return await _page(book, arguments, ranked, _Place(None, 0), limit)


def asked(arguments: Json) -> str:
    """The text that is searched for."""
    return " ".join(part for part in (arguments.get("topic"), arguments.get("content")) if part).strip()


async def _listed(book: Book, arguments: Json) -> Page:
    statement, order = listed(book, arguments)
    limit = arguments.get("limit", _LISTED)
    page = await newest_first(book, statement, entries, entry_from, limit, arguments.get("cursor"), order)
    return Page(await with_entities(book, page.items), page.next_cursor)


# ---- by text ------------------------------------------------------------------------------------------------------


async def _ranked(book: Book, text: str, arguments: Json) -> list[Ranked]:
    found, condition = words(text), of_entries(book, arguments)
    hits = await book.index.lexical(book.connection, found, condition, _POOL) if found else []
    if not hits:
        plain = _PLAIN_WORDS.fullmatch(text) is not None
        hits = await (_beginning(book, found, condition) if plain else _containing(book, text, condition))
    alike = await book.meaning.similar(book.connection, text, condition, _POOL) if book.meaning else []
    near = await neighbours(book, [*hits, *alike], arguments)
    weights = WITH_MEANING if book.meaning else WITHOUT_MEANING
    return rank(_scores(hits), _scores(alike), near, weights)[:_POOL]


def _scores(hits: list[Hit]) -> dict[int, float]:
    return {hit.number: hit.score for hit in hits}


async def _beginning(book: Book, found: list[str], condition: ColumnElement[bool]) -> list[Hit]:
    """For words that nobody wrote: those that begin like them."""
    begun = [word for word in found if len(word) >= _BEGINNING]
    return await book.index.beginning(book.connection, begun, condition, _POOL) if begun else []


async def _containing(book: Book, text: str, condition: ColumnElement[bool]) -> list[Hit]:
    """For what has no words of its own: signs, parts of words, scripts without spaces."""
    key, content = entries.c.topic_key, func.lower(entries.c.content)
    in_topic = key.contains(fold(text), autoescape=True)
    in_content = content.contains(text.lower(), autoescape=True)
    score = case((key == fold(text), 1.0), (in_topic, 0.8), else_=0.5).label("fit")
    statement = select(entries.c.number, key, score).where(condition, or_(in_topic, in_content))
    rows = await book.connection.execute(statement.order_by(score.desc(), entries.c.number.desc()).limit(_POOL))
    return [Hit(row.number, row.topic_key, row.fit) for row in rows]


# ---- its pages ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    ranking: str | None
    """The kept order's name, once it is kept."""
    start: int


async def _page(book: Book, arguments: Json, ranked: list[Ranked], place: _Place, limit: int) -> Page:
    """The next `limit` that are still there and still fit; what was deleted meanwhile leaves no gap."""
    found: list[tuple[int, Json]] = []
    at = place.start
    while at < len(ranked) and len(found) < limit:
        some = ranked[at : at + limit]
        items = await _fetch(book, arguments, some)
        found += [(at + n + 1, items[each.number]) for n, each in enumerate(some) if each.number in items]
        at += len(some)
    shown = fitting([item for _, item in found[:limit]])
    end = found[len(shown)][0] - 1 if len(found) > len(shown) else at
    page = await with_entities(book, shown)
    if end >= len(ranked):
        return Page(page, None)
    name = place.ranking or await rankings.keep(book, arguments, ranked)
    return Page(page, rankings.cursor_at(name, end))


async def _fetch(book: Book, arguments: Json, some: list[Ranked]) -> dict[int, Json]:
    by_number = {each.number: each for each in some}
    statement = select(entries).where(entries.c.number.in_(by_number), of_entries(book, arguments))
    rows = await book.connection.execute(statement)
    return {row.number: {**entry_from(row), **by_number[row.number].scores()} for row in rows}
