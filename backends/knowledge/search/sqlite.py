"""Full-text search on SQLite: FTS5 with bm25 for entries, and a trigram index for substring filters on triples."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import column, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.search.index import Hit, IndexScan
from backends.knowledge.search.word_forms import common_prefix, is_form, stems
from backends.knowledge.sql import Condition, statement
from backends.knowledge.tables import triples
from gateway.contract import Json

_TRIGRAM: Final = 3
_BUDGET: Final = 3_000
"""Maximum number of entries that one search scores; each costs about one microsecond."""
_NEWEST_LIMIT: Final = 1_000
"""Maximum number of entries examined that match only common words; the newest are taken."""
_OVERFETCH: Final = 100
_MAX_TRIGRAMS: Final = 3
"""Number of trigrams matched per text. Three are selective enough; each further one costs time."""
_MAX_STEMMED: Final = 12
"""Number of words of a search whose other forms are looked up."""
_MAX_TERMS: Final = 100
_COMMON_LETTERS: Final = " etaoinshrdlucm"

# The count is limited, because the index would otherwise read the whole posting list of a common word.
_COUNTS: Final = """
SELECT value, (SELECT count(*) FROM (SELECT 1 FROM entry_words WHERE entry_words MATCH given.value LIMIT :most))
FROM json_each(:words) AS given
"""
# FTS5 sorts its own rows faster than joined rows, and the condition seldom excludes many.
_BEST_MATCHES: Final = """
SELECT entries.number, entries.topic_key, best.fit
FROM (SELECT rowid, rank AS fit FROM entry_words WHERE entry_words MATCH :match ORDER BY rank LIMIT :most) AS best
LEFT JOIN entries ON entries.number = best.rowid AND {condition}
ORDER BY best.fit, best.rowid
"""
_ALL_MATCHES: Final = """
SELECT entries.number, entries.topic_key, found.rank
FROM entry_words AS found JOIN entries ON entries.number = found.rowid
WHERE found.entry_words MATCH :match AND {condition} ORDER BY found.rank LIMIT :limit
"""
_NEWEST_MATCHES: Final = """
SELECT * FROM (
  SELECT {at}, -entries.number, entries.topic_key
  FROM (SELECT rowid FROM entry_words WHERE entry_words MATCH :match{at} ORDER BY rowid DESC LIMIT :newest) AS found
  JOIN entries ON entries.number = found.rowid AND {condition} LIMIT :limit)
"""

_TERMS: Final = "SELECT term FROM entry_terms WHERE term >= :first AND term < :last LIMIT :most"

_parts: Final = table("triple_parts", column("rowid"))
# The index returns rows in rowid order without sorting, so only one page is read.
_TRIGRAM_SCAN: Final = IndexScan(
    source=_parts.join(triples, triples.c.number == _parts.c.rowid),
    condition=text("triple_parts MATCH :match"),
    order=_parts.c.rowid,
)


class Fts5:
    """`Index` for SQLite.

    Selective words are scored with bm25 within `budget`. Common words fill up the result with the `newest` matches.
    """

    def __init__(self, budget: int = _BUDGET, newest: int = _NEWEST_LIMIT) -> None:
        self._budget = budget
        self._newest = newest

    def json_strings(self, value: str) -> str:
        return f"SELECT value FROM json_each({value})"  # noqa: S608 - a parameter name, not input

    def json_integers(self, value: str) -> str:
        return self.json_strings(value)

    async def search_words(
        self,
        connection: AsyncConnection,
        words: Sequence[str],
        condition: Condition,
        limit: int,
        languages: tuple[str, ...] = (),
    ) -> list[Hit]:
        terms = [*words, *await _find_forms(connection, words, languages)]
        return await self._search(connection, [_quote(term) for term in dict.fromkeys(terms)], condition, limit)

    async def search_prefixes(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        return await self._search(connection, [f"{_quote(word)} *" for word in words], condition, limit)

    async def _search(
        self, connection: AsyncConnection, phrases: list[str], condition: Condition, limit: int
    ) -> list[Hit]:
        search = _Search(connection, condition, limit, self._newest)
        row_limit = 2 * self._budget + 1
        rows = await connection.execute(statement(_COUNTS), {"words": json.dumps(phrases), "most": row_limit})
        counts = sorted((count, phrase) for phrase, count in rows if count)
        selective: list[str] = []
        budget = self._budget
        for count, phrase in counts:
            if (budget := budget - count) >= 0:
                selective.append(phrase)
        common = [phrase for _, phrase in counts if phrase not in selective]
        # A word that almost every entry contains barely changes the score, but costs time.
        scored_common = [phrase for count, phrase in counts if phrase in common and count < row_limit]
        hits = await search.find_best(selective, scored_common) if selective else []
        if common and len(hits) < limit:
            hits += await search.fill_with_common(common, hits)
        return hits

    def narrow_triples(self, columns: Mapping[str, Sequence[str]]) -> tuple[IndexScan, Json] | None:
        parts = [
            f"{name} : ({' OR '.join(map(_trigram_match, texts))})"
            for name, texts in columns.items()
            if all(len(each) >= _TRIGRAM for each in texts)
        ]
        return (_TRIGRAM_SCAN, {"match": " AND ".join(parts)}) if parts else None


@dataclass(frozen=True, slots=True)
class _Search:
    """One search for phrases in FTS5 query syntax."""

    connection: AsyncConnection
    condition: Condition
    limit: int
    newest: int

    async def find_best(self, selective: list[str], scored_common: list[str]) -> list[Hit]:
        """Find entries with a selective phrase, ranked by bm25; common phrases only contribute to the score."""
        any_phrase = " OR ".join(selective)
        match = f"({any_phrase}) AND ({' OR '.join((*selective, *scored_common))})" if scored_common else any_phrase
        row_limit = self.limit + _OVERFETCH
        rows = await self._rows(_BEST_MATCHES, {"match": match, "most": row_limit})
        matching = [row for row in rows if row[0] is not None]
        if len(rows) == row_limit and len(matching) < self.limit:
            # The condition excluded many matches: apply it to all of them.
            matching = await self._rows(_ALL_MATCHES, {"match": match, "limit": self.limit})
        top = matching[0][2] if matching else -1.0
        return [Hit(number, topic, round(fit / top, 6)) for number, topic, fit in matching[: self.limit]]

    async def fill_with_common(self, common: list[str], known: list[Hit]) -> list[Hit]:
        """Fill up the result with the newest entries that contain common words.

        Entries with all words come before entries with any, and matches in the topic before other matches. Scoring
        all of them would be slow and would not separate them.
        """
        all_phrases, any_phrase = " AND ".join(common), " OR ".join(common)
        matches = [f"topic : ({any_phrase})", any_phrase]
        if len(common) > 1:
            matches = [f"topic : ({all_phrases})", all_phrases, *matches]
        sql = " UNION ALL ".join(_NEWEST_MATCHES.replace("{at}", str(index)) for index in range(len(matches)))
        values: Json = {f"match{index}": match for index, match in enumerate(matches)}
        rows = await self._rows(sql, values | {"newest": self.newest, "limit": self.limit})
        known_numbers = {hit.number for hit in known}
        found = {-number: topic for _, number, topic in sorted(rows) if -number not in known_numbers}
        selected = list(found.items())[: self.limit - len(known)]
        top = known[-1].score if known else 1.0
        # These scores only express the order.
        return [Hit(*each, round(top * (1 - index / (2 * len(selected))), 6)) for index, each in enumerate(selected)]

    async def _rows(self, sql: str, values: Json) -> list[Any]:
        query = statement(sql.replace("{condition}", self.condition.sql))
        return list((await self.connection.execute(query, values | self.condition.values)).all())


async def _find_forms(connection: AsyncConnection, words: Sequence[str], languages: tuple[str, ...]) -> list[str]:
    """Return the indexed words that have the stem of one of the words."""
    forms: list[str] = []
    for word in words[:_MAX_STEMMED]:
        wanted = stems(word, languages)
        for prefix in {common_prefix(each) for each in wanted.values()}:
            values: Json = {"first": prefix, "last": f"{prefix}\U0010ffff", "most": _MAX_TERMS}
            found = (await connection.execute(statement(_TERMS), values)).scalars()
            forms += [term for term in found if term != word and is_form(term, wanted)]
    return forms


def _trigram_match(text: str) -> str:
    """Return the FTS5 match of the text's rarest trigrams; every string that contains the text matches."""
    trigrams = sorted(
        {text[index : index + _TRIGRAM] for index in range(len(text) - _TRIGRAM + 1)}, key=_rarity, reverse=True
    )
    return f"({' AND '.join(map(_quote, trigrams[:_MAX_TRIGRAMS]))})"


def _rarity(trigram: str) -> tuple[int, str]:
    return sum(_COMMON_LETTERS.find(letter) % (len(_COMMON_LETTERS) + 1) for letter in trigram), trigram


def _quote(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"'
