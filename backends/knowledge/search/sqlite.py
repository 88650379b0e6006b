"""SQLite: FTS5 with bm25 for entries, and trigrams that make substring filters on triples fast."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Double, Select, and_, column, func, literal_column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.keys import fold
from backends.knowledge.search.index import Hit
from backends.knowledge.tables import entries, triples
from gateway.contract import Json

_TRIGRAM: Final = 3
_BUDGET: Final = 4_000
"""How many entries one search scores: about a microsecond each."""
_NEWEST: Final = 2_000
"""Of entries that only share words with very many others, the newest so many are looked at."""
_SPARE: Final = 100
_GRAMS: Final = 3
"""So many of a text's trigrams are enough to leave few triples; each more costs time."""
_OFTEN: Final = " etaoinshrdlucm"

_SCHEMA: Final = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS entry_words USING fts5("
    "topic, content, tags, content='entries', content_rowid='number', tokenize='unicode61 remove_diacritics 2')",
    "CREATE VIRTUAL TABLE IF NOT EXISTS entry_vocabulary USING fts5vocab('entry_words', 'row')",
    "CREATE VIRTUAL TABLE IF NOT EXISTS triple_parts USING fts5(subject_key, predicate_key, object_key,"
    " content='triples', content_rowid='number', tokenize='trigram case_sensitive 1', detail=column)",
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
_WEIGHTS: Final = "INSERT INTO entry_words (entry_words, rank) VALUES ('rank', 'bm25(4.0, 1.0, 2.0)')"
_RANK: Final = literal_column("rank", Double)


class Fts5:
    """`Index`, for SQLite."""

    def __init__(self, budget: int = _BUDGET, newest: int = _NEWEST) -> None:
        self._budget = budget
        self._newest = newest

    async def prepare(self, connection: AsyncConnection) -> None:
        for statement in (*_SCHEMA, _WEIGHTS):
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
        search = self._search(connection, condition, limit)
        found = await connection.execute(select(_vocabulary).where(_vocabulary.c.term.in_(words)))
        held = sorted((row.doc, row.term) for row in found)
        if sum(count for count, _ in held) > self._budget:
            return _hits(await search.among_very_many(held))
        return _hits(await search.rows(_either([word for _, word in held])) if held else [])

    async def beginning(
        self, connection: AsyncConnection, words: Sequence[str], condition: ColumnElement[bool], limit: int
    ) -> list[Hit]:
        match = " OR ".join(f"{_quoted(word)} *" for word in words)
        return _hits(await self._search(connection, condition, limit).rows(match))

    def _search(self, connection: AsyncConnection, condition: ColumnElement[bool], limit: int) -> "_Search":
        return _Search(connection, condition, limit, self._budget, self._newest)

    def narrow(
        self, statement: Select[Any], wanted: Mapping[str, Sequence[str]]
    ) -> tuple[Select[Any], ColumnElement[Any]]:
        parts = [
            f"{name} : ({' OR '.join(map(_grams, texts))})"
            for name, texts in wanted.items()
            if all(len(each) >= _TRIGRAM for each in texts)
        ]
        if not parts:
            return statement, triples.c.id
        joined = statement.select_from(_parts.join(triples, triples.c.number == _parts.c.rowid))
        # The index gives its rows in this order at no cost, so that a page is read and no more.
        return joined.where(_MATCH_TRIPLE.bindparams(match=" AND ".join(parts))), _parts.c.rowid


@dataclass(frozen=True, slots=True)
class _Search:
    """One search for words."""

    connection: AsyncConnection
    condition: ColumnElement[bool]
    limit: int
    budget: int
    newest: int

    async def among_very_many(self, held: list[tuple[int, str]]) -> list[Any]:
        """All entries with a telling word; of those with a common one, who has it in the topic or is new.

        A word that every other entry has says little, and scoring every other entry would take longer than anybody
        wants to wait.
        """
        telling: list[str] = []
        left = self.budget
        for count, word in held:
            if (left := left - count) >= 0:
                telling.append(word)
        common = [word for _, word in held if word not in telling]
        any_common = _either(common)
        best: dict[int, Any] = {}
        if telling:
            rare = _either(telling)
            best = {row.number: row for row in await self.rows(f"({rare}) AND ({rare} OR {any_common})")}
        if len(best) < self.limit:
            for row in await self._titled_or_new(any_common):
                best.setdefault(row.number, row)
        return sorted(best.values(), key=lambda row: (row.fit, row.number))[: self.limit]

    async def _titled_or_new(self, any_common: str) -> list[Any]:
        in_topic = f"topic : ({any_common})"
        counted = select(func.count()).select_from(_words).where(_MATCH_ENTRY.bindparams(match=in_topic))
        few = (await self.connection.execute(counted)).scalar_one() <= self.budget
        recent = await self.rows(any_common, _words.c.rowid > await self._oldest_of_the_newest())
        return [*await self.rows(in_topic), *recent] if few else recent

    async def rows(self, match: str, *bounds: ColumnElement[bool]) -> list[Any]:
        """The best first."""
        found = select(_words.c.rowid, _RANK.label("fit")).where(_MATCH_ENTRY.bindparams(match=match), *bounds)
        most = self.limit + _SPARE
        # The index sorts its own rows faster than rows that were joined, and the condition seldom leaves many out.
        rows = list(await self.connection.execute(self._joined(found.order_by(_RANK).limit(most))))
        kept = [row for row in rows if row.number is not None][: self.limit]
        if len(rows) < most or len(kept) == self.limit:
            return kept
        every = self._joined(found).where(entries.c.number.is_not(None)).limit(self.limit)
        return list(await self.connection.execute(every))

    def _joined(self, found: Any) -> Select[Any]:
        """What was found, the best first; without a number where the condition leaves it out."""
        best = found.subquery("best")
        fitting = and_(entries.c.number == best.c.rowid, self.condition)
        joined: Any = select(entries.c.number, entries.c.topic_key, best.c.fit)
        return joined.select_from(best.outerjoin(entries, fitting)).order_by(best.c.fit, best.c.rowid)

    async def _oldest_of_the_newest(self) -> int:
        statement = select(entries.c.number).order_by(entries.c.number.desc()).offset(self.newest).limit(1)
        return (await self.connection.execute(statement)).scalar() or 0


def _hits(rows: list[Any]) -> list[Hit]:
    best = rows[0].fit if rows else -1.0
    return [Hit(row.number, row.topic_key, row.fit / best) for row in rows]


def _either(words: Sequence[str]) -> str:
    return " OR ".join(map(_quoted, words))


def _grams(text: str) -> str:
    """The trigrams of the text that look rarest: whatever contains the text has them all."""
    grams = sorted({text[at : at + _TRIGRAM] for at in range(len(text) - _TRIGRAM + 1)}, key=_rarity, reverse=True)
    return f"({' AND '.join(map(_quoted, grams[:_GRAMS]))})"


def _rarity(gram: str) -> tuple[int, str]:
    return sum(_OFTEN.find(letter) % (len(_OFTEN) + 1) for letter in gram), gram


def _quoted(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"'


def _entry(number: int, entry: Json) -> Json:
    tags = json.dumps(entry["tags"], ensure_ascii=False)
    return {"number": number, "topic": entry["topic"], "content": entry["content"], "tags": tags}


def _triple(number: int, triple: Json) -> Json:
    return {"number": number, **{part: fold(triple[part]) for part in ("subject", "predicate", "object")}}
