"""SQLite: FTS5 with bm25 for entries, and trigrams that make substring filters on triples fast."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import column, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.search.index import Hit, Shortcut
from backends.knowledge.sql import Condition, statement
from backends.knowledge.tables import triples
from gateway.contract import Json

_TRIGRAM: Final = 3
_BUDGET: Final = 3_000
"""How many entries one search scores: about a microsecond each, on a machine that does nothing else."""
_NEWEST: Final = 1_000
"""Of entries that only share words with very many others, the newest so many are looked at."""
_SPARE: Final = 100
_GRAMS: Final = 3
"""So many of a text's trigrams are enough to leave few triples; each more costs time."""
_OFTEN: Final = " etaoinshrdlucm"

# Counting ends where it no longer matters: the index would read a common word's whole list.
_COUNTS: Final = """
SELECT value, (SELECT count(*) FROM (SELECT 1 FROM entry_words WHERE entry_words MATCH given.value LIMIT :most))
FROM json_each(:words) AS given
"""
# The index sorts its own rows faster than rows that were joined, and the condition seldom leaves many out.
_BEST: Final = """
SELECT entries.number, entries.topic_key, best.fit
FROM (SELECT rowid, rank AS fit FROM entry_words WHERE entry_words MATCH :match ORDER BY rank LIMIT :most) AS best
LEFT JOIN entries ON entries.number = best.rowid AND {condition}
ORDER BY best.fit, best.rowid
"""
_EVERY: Final = """
SELECT entries.number, entries.topic_key, found.rank
FROM entry_words AS found JOIN entries ON entries.number = found.rowid
WHERE found.entry_words MATCH :match AND {condition} ORDER BY found.rank LIMIT :limit
"""
_NEWEST_OF: Final = """
SELECT * FROM (
  SELECT {at}, -entries.number, entries.topic_key
  FROM (SELECT rowid FROM entry_words WHERE entry_words MATCH :match{at} ORDER BY rowid DESC LIMIT :newest) AS found
  JOIN entries ON entries.number = found.rowid AND {condition} LIMIT :limit)
"""

_parts: Final = table("triple_parts", column("rowid"))
# The index gives its rows in this order at no cost, so that a page is read and no more.
_BY_PARTS: Final = Shortcut(
    source=_parts.join(triples, triples.c.number == _parts.c.rowid),
    condition=text("triple_parts MATCH :match"),
    order=_parts.c.rowid,
)


class Fts5:
    """`Index`, for SQLite."""

    def __init__(self, budget: int = _BUDGET, newest: int = _NEWEST) -> None:
        self._budget = budget
        self._newest = newest

    def listed(self, value: str) -> str:
        return f"SELECT value FROM json_each({value})"  # noqa: S608 - a name of ours

    def numbers(self, value: str) -> str:
        return self.listed(value)

    async def lexical(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        return await self._search(connection, [_quoted(word) for word in words], condition, limit)

    async def beginning(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        return await self._search(connection, [f"{_quoted(word)} *" for word in words], condition, limit)

    async def _search(
        self, connection: AsyncConnection, phrases: list[str], condition: Condition, limit: int
    ) -> list[Hit]:
        search = _Search(connection, condition, limit, self._newest)
        most = 2 * self._budget + 1
        counted = await connection.execute(statement(_COUNTS), {"words": json.dumps(phrases), "most": most})
        held = sorted((count, phrase) for phrase, count in counted if count)
        telling: list[str] = []
        left = self._budget
        for count, phrase in held:
            if (left := left - count) >= 0:
                telling.append(phrase)
        common = [phrase for _, phrase in held if phrase not in telling]
        # A word that nearly every entry has adds nothing to a score but the time to count it.
        adding = [phrase for count, phrase in held if phrase in common and count < most]
        hits = await search.best(telling, adding) if telling else []
        if common and len(hits) < limit:
            hits += await search.filling(common, hits)
        return hits

    def narrow(self, wanted: Mapping[str, Sequence[str]]) -> tuple[Shortcut, Json] | None:
        parts = [
            f"{name} : ({' OR '.join(map(_grams, texts))})"
            for name, texts in wanted.items()
            if all(len(each) >= _TRIGRAM for each in texts)
        ]
        return (_BY_PARTS, {"match": " AND ".join(parts)}) if parts else None


@dataclass(frozen=True, slots=True)
class _Search:
    """One search for phrases of the index's own language."""

    connection: AsyncConnection
    condition: Condition
    limit: int
    newest: int

    async def best(self, telling: list[str], adding: list[str]) -> list[Hit]:
        """All entries with a telling phrase, by bm25; the others count where they are there."""
        either = " OR ".join(telling)
        match = f"({either}) AND ({' OR '.join((*telling, *adding))})" if adding else either
        most = self.limit + _SPARE
        rows = await self._rows(_BEST, {"match": match, "most": most})
        kept = [row for row in rows if row[0] is not None]
        if len(rows) == most and len(kept) < self.limit:
            # The condition left many out: then everything found is looked at.
            kept = await self._rows(_EVERY, {"match": match, "limit": self.limit})
        top = kept[0][2] if kept else -1.0
        return [Hit(number, topic, round(fit / top, 6)) for number, topic, fit in kept[: self.limit]]

    async def filling(self, common: list[str], known: list[Hit]) -> list[Hit]:
        """Of the very many with common words: with all of them before any, in the topic before elsewhere, the newest.

        Scoring every other entry would take longer than anybody wants to wait, and tell little.
        """
        every, either = " AND ".join(common), " OR ".join(common)
        matches = [f"topic : ({either})", either]
        if len(common) > 1:
            matches = [f"topic : ({every})", every, *matches]
        sql = " UNION ALL ".join(_NEWEST_OF.replace("{at}", str(at)) for at in range(len(matches)))
        values: Json = {f"match{at}": match for at, match in enumerate(matches)}
        rows = await self._rows(sql, values | {"newest": self.newest, "limit": self.limit})
        numbers = {hit.number for hit in known}
        found = {-number: topic for _, number, topic in sorted(rows) if -number not in numbers}
        room = list(found.items())[: self.limit - len(known)]
        top = known[-1].score if known else 1.0
        # Their scores say no more than their order.
        return [Hit(*each, round(top * (1 - at / (2 * len(room))), 6)) for at, each in enumerate(room)]

    async def _rows(self, sql: str, values: Json) -> list[Any]:
        made = statement(sql.replace("{condition}", self.condition.sql))
        return list((await self.connection.execute(made, values | self.condition.values)).all())


def _grams(text: str) -> str:
    """The trigrams of the text that look rarest: whatever contains the text has them all."""
    grams = sorted({text[at : at + _TRIGRAM] for at in range(len(text) - _TRIGRAM + 1)}, key=_rarity, reverse=True)
    return f"({' AND '.join(map(_quoted, grams[:_GRAMS]))})"


def _rarity(gram: str) -> tuple[int, str]:
    return sum(_OFTEN.find(letter) % (len(_OFTEN) + 1) for letter in gram), gram


def _quoted(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"'
