"""Full-text search on PostgreSQL with a generated `tsvector` column, ranked by `ts_rank`."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.search.index import Hit, IndexScan
from backends.knowledge.search.word_forms import common_prefix, stems
from backends.knowledge.sql import Condition, statement
from gateway.contract import Json

_SEARCH: Final = """
SELECT entries.number, entries.topic_key, ts_rank(ARRAY[0.1, 0.2, 0.5, 1.0], entries.words, sought.words) AS fit
FROM to_tsquery('simple', :sought) AS sought (words), entries
WHERE {condition} AND entries.words @@ sought.words
ORDER BY fit DESC, entries.number LIMIT :limit
"""
_JSON_STRINGS: Final = "SELECT value FROM jsonb_array_elements_text(CAST({value} AS jsonb)) AS given (value)"
_JSON_INTEGERS: Final = (
    "SELECT CAST(value AS BIGINT) FROM jsonb_array_elements_text(CAST({value} AS jsonb)) AS given (value)"
)
_MIN_PREFIX: Final = 4
_SPECIAL: Final = re.compile(r"['\\]")


class TextSearch:
    """`Index` for PostgreSQL."""

    def json_strings(self, value: str) -> str:
        return _JSON_STRINGS.format(value=value)

    def json_integers(self, value: str) -> str:
        return _JSON_INTEGERS.format(value=value)

    async def search_words(
        self,
        connection: AsyncConnection,
        words: Sequence[str],
        condition: Condition,
        limit: int,
        languages: tuple[str, ...] = (),
    ) -> list[Hit]:
        # The words that rows contain cannot be listed cheaply: all words that begin like a long stem count as forms.
        found = {each for word in words for each in stems(word, languages).values()}
        prefixes = sorted(prefix for prefix in map(common_prefix, found) if len(prefix) >= _MIN_PREFIX)
        terms = [*map(_quote, words), *(f"{_quote(prefix)}:*" for prefix in prefixes)]
        return await _search(connection, terms, condition, limit)

    async def search_prefixes(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        return await _search(connection, [f"{_quote(word)}:*" for word in words], condition, limit)

    def narrow_triples(self, columns: Mapping[str, Sequence[str]]) -> tuple[IndexScan, Json] | None:
        return None


async def _search(connection: AsyncConnection, terms: list[str], condition: Condition, limit: int) -> list[Hit]:
    if not terms:
        return []
    values: Json = {"sought": " | ".join(terms), "limit": limit}
    query = statement(_SEARCH.replace("{condition}", condition.sql))
    rows = (await connection.execute(query, values | condition.values)).all()
    best = rows[0][2] if rows else 1.0
    return [Hit(number, topic, round(fit / best, 6)) for number, topic, fit in rows]


def _quote(word: str) -> str:
    return f"'{_SPECIAL.sub('', word)}'"
