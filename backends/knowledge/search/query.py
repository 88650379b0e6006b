"""Searching entries: by words and graph with a score, or by tags alone, newest first."""

import json
import re
from dataclasses import dataclass
from typing import Final

from backends.knowledge.entries import with_entities
from backends.knowledge.paging import Page, fitting, newest_first
from backends.knowledge.row_mapping import entry_from
from backends.knowledge.search import saved_rankings
from backends.knowledge.search.filters import listed, of_entries
from backends.knowledge.search.graph_neighbours import neighbours
from backends.knowledge.search.index import Hit
from backends.knowledge.search.ranking import WITH_MEANING, WITHOUT_MEANING, Ranked, rank
from backends.knowledge.sql import Condition, like, statement
from backends.knowledge.text_keys import fold, words
from backends.knowledge.unit_of_work import Book
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
        name, ranked, start = await saved_rankings.open_at(book, arguments, cursor)
        return await _page(book, arguments, ranked, _Place(name, start), limit)
    ranked = await _ranked(book, text, arguments)
    return await _page(book, arguments, ranked, _Place(None, 0), limit)


def asked(arguments: Json) -> str:
    """The text that is searched for."""
    return " ".join(part for part in (arguments.get("topic"), arguments.get("content")) if part).strip()


async def _listed(book: Book, arguments: Json) -> Page:
    listing, values = listed(book, arguments)
    limit = arguments.get("limit", _LISTED)
    page = await newest_first(book, listing, entry_from, limit, arguments.get("cursor"), values)
    return Page(await with_entities(book, page.items), page.next_cursor)


# ---- by text ------------------------------------------------------------------------------------------------------


async def _ranked(book: Book, text: str, arguments: Json) -> list[Ranked]:
    found, condition = words(text), of_entries(book, arguments)
    hits = await book.index.lexical(book.connection, found, condition, _POOL) if found else []
    if not hits:
        plain = _PLAIN_WORDS.fullmatch(text) is not None
        hits = await (_beginning(book, found, condition) if plain else _containing(book, text, condition))
    alike = await book.meaning.similar(book.connection, text, condition, _POOL) if book.meaning else []
    near = await neighbours(book, [*hits, *alike], arguments, condition)
    weights = WITH_MEANING if book.meaning else WITHOUT_MEANING
    return rank(_scores(hits), _scores(alike), near, weights)[:_POOL]


def _scores(hits: list[Hit]) -> dict[int, float]:
    return {hit.number: hit.score for hit in hits}


async def _beginning(book: Book, found: list[str], condition: Condition) -> list[Hit]:
    """For words that nobody wrote: those that begin like them."""
    begun = [word for word in found if len(word) >= _BEGINNING]
    return await book.index.beginning(book.connection, begun, condition, _POOL) if begun else []


_CONTAINING: Final = """
SELECT number, topic_key, CAST(CASE WHEN topic_key = :key THEN 1.0
  WHEN topic_key LIKE :in_topic ESCAPE '/' THEN 0.8 ELSE 0.5 END AS DOUBLE PRECISION) AS fit
FROM entries
WHERE {condition} AND (topic_key LIKE :in_topic ESCAPE '/' OR lower(content) LIKE :in_content ESCAPE '/')
ORDER BY fit DESC, number DESC LIMIT :limit
"""


async def _containing(book: Book, text: str, condition: Condition) -> list[Hit]:
    """For what has no words of its own: signs, parts of words, scripts without spaces."""
    key = fold(text)
    values: Json = {"key": key, "in_topic": like(key), "in_content": like(text.lower()), "limit": _POOL}
    made = statement(_CONTAINING.replace("{condition}", condition.sql))
    rows = await book.connection.execute(made, values | condition.values)
    return [Hit(*row) for row in rows]


# ---- its pages ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    ranking: str | None
    """The kept order's name, once it is kept."""
    start: int


async def _page(book: Book, arguments: Json, ranked: list[Ranked], place: _Place, limit: int) -> Page:
    """The next `limit` that are still there and still fit; what was deleted meanwhile leaves no gap."""
    found: list[tuple[int, Json]] = []
    condition = of_entries(book, arguments)
    at = place.start
    while at < len(ranked) and len(found) < limit:
        some = ranked[at : at + limit]
        items = await _fetch(book, condition, some)
        found += [(at + n + 1, items[each.number]) for n, each in enumerate(some) if each.number in items]
        at += len(some)
    shown = fitting([item for _, item in found[:limit]])
    end = found[len(shown)][0] - 1 if len(found) > len(shown) else at
    if end >= len(ranked):
        return Page(shown, None)
    name = place.ranking or await saved_rankings.keep(book, arguments, ranked)
    return Page(shown, saved_rankings.cursor_at(name, end))


_SHOWN: Final = """
SELECT entries.*, names.entity_id AS canonical_entity_id
FROM entries LEFT JOIN names ON names.name_key = entries.topic_key
WHERE entries.number IN ({numbers}) AND {condition}
"""


async def _fetch(book: Book, condition: Condition, some: list[Ranked]) -> dict[int, Json]:
    by_number = {each.number: each for each in some}
    numbers = book.index.numbers(":numbers")
    made = statement(_SHOWN.format(numbers=numbers, condition=condition.sql))
    rows = await book.connection.execute(made, {"numbers": json.dumps(list(by_number)), **condition.values})
    return {
        row.number: {
            **entry_from(row),
            **by_number[row.number].scores(),
            "canonical_entity_id": row.canonical_entity_id,
        }
        for row in rows
    }
