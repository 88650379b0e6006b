"""Recognizes entries stored again: exact duplicates by their normalized text, near-duplicates by their words."""

import json
from typing import Any, Final

from sqlalchemy import bindparam, select

from backends.knowledge.row_mapping import duplicate_digest, entry_from_row
from backends.knowledge.sql import Condition, statement
from backends.knowledge.tables import entries
from backends.knowledge.text_keys import fold, words
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json

MAX_SIMILAR: Final = 5
_MIN_SHARED_WORDS: Final = 0.6
"""Share of common words, of all words of both texts, from which two entries are near-duplicates."""
_SOUGHT_WORDS: Final = 8
_CANDIDATES: Final = 10
_SAME: Final = (
    select(entries)
    .where(entries.c.deleted_at.is_(None), entries.c.duplicate_digest == bindparam("sought"))
    .order_by(entries.c.number)
)
# Rows from before the digest existed.
_SAME_TOPIC: Final = (
    select(entries)
    .where(entries.c.deleted_at.is_(None), entries.c.duplicate_digest.is_(None))
    .where(entries.c.topic_key == bindparam("topic_key"))
    .order_by(entries.c.number)
    .limit(100)
)
_ACTIVE: Final = Condition("entries.deleted_at IS NULL", {})
_FETCH: Final = "SELECT id, number, topic, content FROM entries WHERE number IN ({numbers})"


async def find_duplicate(unit: UnitOfWork, entry: Json) -> Json | None:
    """Return the oldest active entry with the same normalized topic, content and tags and the same validity."""
    sought = duplicate_digest(entry)
    rows = list(await unit.connection.execute(_SAME, {"sought": sought}))
    rows += list(await unit.connection.execute(_SAME_TOPIC, {"topic_key": fold(entry["topic"])}))
    for found in map(entry_from_row, rows):
        same_time = all(found[name] == entry[name] for name in ("valid_from", "valid_to"))
        if same_time and duplicate_digest(found) == sought:
            return found
    return None


async def find_similar(unit: UnitOfWork, entry: Json) -> list[Json]:
    """Return the near-duplicates of a new entry: `id`, `topic` and `similarity`, the most similar first."""
    own = set(words(f"{entry['topic']} {entry['content']}"))
    # Long words are rare words: a near-duplicate has most of them.
    sought = sorted(own, key=lambda word: (-len(word), word))[:_SOUGHT_WORDS]
    hits = await unit.index.search_words(unit.connection, sought, _ACTIVE, _CANDIDATES) if sought else []
    found: list[Json] = []
    for row in await _rows(unit, [hit.number for hit in hits]):
        other = set(words(f"{row.topic} {row.content}"))
        shared = len(own & other) / len(own | other)
        if shared >= _MIN_SHARED_WORDS:
            found.append({"id": row.id, "topic": row.topic, "similarity": round(shared, 3)})
    return sorted(found, key=lambda each: (-each["similarity"], each["id"]))[:MAX_SIMILAR]


async def _rows(unit: UnitOfWork, numbers: list[int]) -> list[Any]:
    if not numbers:
        return []
    sql = _FETCH.format(numbers=unit.index.json_integers(":numbers"))
    return list(await unit.connection.execute(statement(sql), {"numbers": json.dumps(numbers)}))
