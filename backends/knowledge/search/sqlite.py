"""SQLite: FTS5 with bm25 for entries, and trigrams that make substring filters on triples fast."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import ColumnElement, Double, column, literal_column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.keys import fold
from backends.knowledge.search.index import Hit
from backends.knowledge.tables import entries, triples
from gateway.contract import Json

_TRIGRAM: Final = 3
_COMMON: Final = 0.2
"""The part of all entries from which on a word tells so little that a search goes by its other words."""

_SCHEMA: Final = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS entry_words USING fts5("
    "topic, content, tags, content='entries', content_rowid='number', tokenize='unicode61 remove_diacritics 2')",
    "CREATE VIRTUAL TABLE IF NOT EXISTS entry_vocabulary USING fts5vocab('entry_words', 'row')",
    "CREATE VIRTUAL TABLE IF NOT EXISTS triple_parts USING fts5(subject_key, predicate_key, object_key,"
    " content='triples', content_rowid='number', tokenize='trigram case_sensitive 1')",
)
_ADD_ENTRY: Final = text(
    "INSERT INTO entry_words (rowid, topic, content, tags) VALUES (:number, :topic, :content, :tags)"
)
_REMOVE_ENTRY: Final = text(
    "INSERT INTO entry_words (entry_words, rowid, topic, content, tags)"
    " VALUES ('delete', :number, :topic, :content, :tags)"
)
_ADD_TRIPLE: Final = text(
    "INSERT INTO triple_parts (rowid, subject_key, predicate_key, object_key)"
    " VALUES (:number, :subject, :predicate, :object)"
)
_REMOVE_TRIPLE: Final = text(
    "INSERT INTO triple_parts (triple_parts, rowid, subject_key, predicate_key, object_key)"
    " VALUES ('delete', :number, :subject, :predicate, :object)"
)

_words: Final = table("entry_words", column("rowid"))
_parts: Final = table("triple_parts", column("rowid"))
_vocabulary: Final = table("entry_vocabulary", column("term"), column("doc"))
_MATCH_ENTRY: Final = text("entry_words MATCH :match")
_MATCH_TRIPLE: Final = text("triple_parts MATCH :match")
# A word of the topic says most of what an entry is about, then a tag.
_RANK: Final = literal_column("bm25(entry_words, 4.0, 1.0, 2.0)", Double).label("fit")
_ENTRIES_EVER: Final = text("SELECT COUNT(*) FROM entry_words_docsize")


class Fts5:
    """`Index`, for SQLite."""

    async def prepare(self, connection: AsyncConnection) -> None:
        for statement in _SCHEMA:
            await connection.exec_driver_sql(statement)

    async def add_entry(self, connection: AsyncConnection, number: int, entry: Json) -> None:
        await connection.execute(_ADD_ENTRY, _entry(number, entry))

    async def remove_entry(self, connection: AsyncConnection, number: int, entry: Json) -> None:
        await connection.execute(_REMOVE_ENTRY, _entry(number, entry))

    async def add_triple(self, connection: AsyncConnection, number: int, triple: Json) -> None:
        await connection.execute(_ADD_TRIPLE, _triple(number, triple))

    async def remove_triple(self, connection: AsyncConnection, number: int, triple: Json) -> None:
        await connection.execute(_REMOVE_TRIPLE, _triple(number, triple))

    async def lexical(
        self, connection: AsyncConnection, words: Sequence[str], condition: ColumnElement[bool], limit: int
    ) -> list[Hit]:
        telling = await _telling(connection, words)
        if not telling:
            return []
        statement = (
            select(entries.c.number, entries.c.topic_key, _RANK)
            .select_from(_words.join(entries, entries.c.number == _words.c.rowid))
            .where(_MATCH_ENTRY.bindparams(match=" OR ".join(map(_quoted, telling))), condition)
            .order_by(literal_column("fit"), entries.c.number)
            .limit(limit)
        )
        rows = (await connection.execute(statement)).all()
        best = rows[0].fit if rows else -1.0
        return [Hit(row.number, row.topic_key, row.fit / best) for row in rows]

    def narrow(self, wanted: Mapping[str, Sequence[str]]) -> ColumnElement[bool] | None:
        parts = [
            f"{name} : ({' OR '.join(map(_quoted, texts))})"
            for name, texts in wanted.items()
            if all(len(each) >= _TRIGRAM for each in texts)
        ]
        if not parts:
            return None
        match = _MATCH_TRIPLE.bindparams(match=" AND ".join(parts))
        return triples.c.number.in_(select(_parts.c.rowid).where(match))


async def _telling(connection: AsyncConnection, words: Sequence[str]) -> list[str]:
    """The words without those that nearly every entry has, unless there are no others.

    bm25 gives such words next to no weight, but would score every entry for them.
    """
    found = await connection.execute(select(_vocabulary).where(_vocabulary.c.term.in_(words)))
    held = {row.term: row.doc for row in found}
    if not held or len(words) == 1:
        return list(words) if held else []
    total = (await connection.execute(_ENTRIES_EVER)).scalar_one()
    rarer = [word for word in words if 0 < held.get(word, 0) <= max(_COMMON * total, 100)]
    return rarer or [min(held, key=lambda word: held[word])]


def _quoted(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"'


def _entry(number: int, entry: Json) -> Json:
    tags = json.dumps(entry["tags"], ensure_ascii=False)
    return {"number": number, "topic": entry["topic"], "content": entry["content"], "tags": tags}


def _triple(number: int, triple: Json) -> Json:
    return {"number": number, **{part: fold(triple[part]) for part in ("subject", "predicate", "object")}}
