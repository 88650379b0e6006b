"""Searches entries: by text with scores, or by tags alone, newest first."""

import json
import re
from dataclasses import dataclass
from typing import Final

from backends.knowledge.entries import with_entities
from backends.knowledge.paging import Page, fetch_page, fit_page
from backends.knowledge.row_mapping import entry_from_row
from backends.knowledge.search import saved_rankings
from backends.knowledge.search.filters import entry_filter, entry_list
from backends.knowledge.search.graph_neighbours import find_neighbours
from backends.knowledge.search.index import Hit
from backends.knowledge.search.ranking import WITH_SEMANTIC, WITHOUT_SEMANTIC, Ranked, fuse, rank
from backends.knowledge.sql import Condition, contains_pattern, statement
from backends.knowledge.text_keys import fold, words
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json

_MAX_RANKED: Final = 200
"""Maximum number of ranked hits per search."""
_DEFAULT_SEARCH_LIMIT: Final = 20
_MIN_PREFIX_LENGTH: Final = 3
_PLAIN_WORDS: Final = re.compile(r"[A-Za-z0-9\s]+")
_DEFAULT_LIST_LIMIT: Final = 50


async def query(unit: UnitOfWork, arguments: Json) -> Page:
    text = search_text(arguments)
    if not text:
        return await _list_entries(unit, arguments)
    limit = arguments.get("limit", _DEFAULT_SEARCH_LIMIT)
    if (cursor := arguments.get("cursor")) is not None:
        name, ranked, start = await saved_rankings.load(unit, arguments, cursor)
        return await _page(unit, arguments, ranked, _Position(name, start), limit)
    ranked = await _search(unit, text, arguments)
    return await _page(unit, arguments, ranked, _Position(None, 0), limit)


def search_text(arguments: Json) -> str:
    """Return the search text: topic and content joined."""
    return " ".join(part for part in (arguments.get("topic"), arguments.get("content")) if part).strip()


async def _list_entries(unit: UnitOfWork, arguments: Json) -> Page:
    listing, values = entry_list(unit, arguments)
    limit = arguments.get("limit", _DEFAULT_LIST_LIMIT)
    page = await fetch_page(unit, listing, entry_from_row, limit, arguments.get("cursor"), values)
    return Page(await with_entities(unit, page.items), page.next_cursor)


# ---- text search --------------------------------------------------------------------------------------------------


async def _search(unit: UnitOfWork, text: str, arguments: Json) -> list[Ranked]:
    terms, condition = words(text), entry_filter(unit, arguments)
    hits: list[Hit] = []
    if terms:
        hits = await unit.index.search_words(unit.connection, terms, condition, _MAX_RANKED, unit.languages)
    if not hits:
        plain = _PLAIN_WORDS.fullmatch(text) is not None
        hits = await (_search_prefixes(unit, terms, condition) if plain else _search_substring(unit, text, condition))
    similar = await unit.semantic.similar(unit.connection, text, condition, _MAX_RANKED) if unit.semantic else []
    neighbours = await find_neighbours(unit, [*hits, *similar], arguments, condition)
    if unit.fuse_ranks:
        return fuse(hits, similar, neighbours)[:_MAX_RANKED]
    weights = WITH_SEMANTIC if unit.semantic else WITHOUT_SEMANTIC
    return rank(_scores(hits), _scores(similar), neighbours, weights)[:_MAX_RANKED]


def _scores(hits: list[Hit]) -> dict[int, float]:
    return {hit.number: hit.score for hit in hits}


async def _search_prefixes(unit: UnitOfWork, terms: list[str], condition: Condition) -> list[Hit]:
    """Fallback for words without an exact match: entries with words that start with them."""
    prefixes = [word for word in terms if len(word) >= _MIN_PREFIX_LENGTH]
    return await unit.index.search_prefixes(unit.connection, prefixes, condition, _MAX_RANKED) if prefixes else []


_SUBSTRING_SEARCH: Final = """
SELECT number, topic_key, CAST(CASE WHEN topic_key = :key THEN 1.0
  WHEN topic_key LIKE :in_topic ESCAPE '/' THEN 0.8 ELSE 0.5 END AS DOUBLE PRECISION) AS fit
FROM entries
WHERE {condition} AND (topic_key LIKE :in_topic ESCAPE '/' OR lower(content) LIKE :in_content ESCAPE '/')
ORDER BY fit DESC, number DESC LIMIT :limit
"""


async def _search_substring(unit: UnitOfWork, text: str, condition: Condition) -> list[Hit]:
    """Fallback for texts that are not indexed words: symbols, parts of words, scripts without spaces."""
    key = fold(text)
    values: Json = {
        "key": key,
        "in_topic": contains_pattern(key),
        "in_content": contains_pattern(text.lower()),
        "limit": _MAX_RANKED,
    }
    sql_statement = statement(_SUBSTRING_SEARCH.replace("{condition}", condition.sql))
    rows = await unit.connection.execute(sql_statement, values | condition.values)
    return [Hit(*row) for row in rows]


# ---- paging -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a page starts in a ranking."""

    ranking: str | None
    """The id of the saved ranking; None until it is saved."""
    start: int


async def _page(unit: UnitOfWork, arguments: Json, ranked: list[Ranked], position: _Position, limit: int) -> Page:
    """Return the next `limit` entries that still match. Entries deleted since the ranking leave no gap."""
    found: list[tuple[int, Json]] = []
    condition = entry_filter(unit, arguments)
    offset = position.start
    while offset < len(ranked) and len(found) < limit:
        batch = ranked[offset : offset + limit]
        items = await _fetch(unit, condition, batch)
        found += [(offset + n + 1, items[each.number]) for n, each in enumerate(batch) if each.number in items]
        offset += len(batch)
    page_items = fit_page([item for _, item in found[:limit]])
    end = found[len(page_items)][0] - 1 if len(found) > len(page_items) else offset
    if end >= len(ranked):
        return Page(page_items, None)
    name = position.ranking or await saved_rankings.save(unit, arguments, ranked)
    return Page(page_items, saved_rankings.cursor_at(name, end))


_FETCH: Final = """
SELECT entries.*, names.entity_id AS canonical_entity_id
FROM entries LEFT JOIN names ON names.name_key = entries.topic_key
WHERE entries.number IN ({numbers}) AND {condition}
"""


async def _fetch(unit: UnitOfWork, condition: Condition, batch: list[Ranked]) -> dict[int, Json]:
    by_number = {each.number: each for each in batch}
    numbers = unit.index.json_integers(":numbers")
    sql_statement = statement(_FETCH.format(numbers=numbers, condition=condition.sql))
    rows = await unit.connection.execute(sql_statement, {"numbers": json.dumps(list(by_number)), **condition.values})
    return {
        row.number: {
            **entry_from_row(row),
            **by_number[row.number].scores(),
            "canonical_entity_id": row.canonical_entity_id,
        }
        for row in rows
    }
