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
_CONFIGURATIONS: Final = frozenset(
    {
        *("arabic", "danish", "dutch", "english", "finnish", "french", "german", "hungarian", "italian", "norwegian"),
        *("portuguese", "romanian", "russian", "spanish", "swedish", "turkish"),
    }
)
"""Text search configurations of PostgreSQL that are also Snowball languages."""
_FORM_CHECK: Final = (
    "to_tsvector('{language}', plain_words(entries.topic || ' ' || entries.tags || ' ' || entries.content))"
    " @@ to_tsquery('{language}', :exact)"
)
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
        exact = [_quote(word) for word in words]
        known = tuple(language for language in languages if language in _CONFIGURATIONS)
        found = {each for word in words for each in stems(word, known).values()}
        if not found:
            return await _search(connection, exact, condition, limit)
        # Words that begin like a stem are found quickly; the server's own stemmer then checks those rows.
        prefixes = [f"{_quote(prefix)}:*" for prefix in sorted(map(common_prefix, found))]
        checks = " OR ".join(_FORM_CHECK.format(language=language) for language in known)
        any_word = " | ".join(exact)
        forms = Condition(
            f"{condition.sql} AND (entries.words @@ to_tsquery('simple', :exact) OR {checks})",
            {**condition.values, "exact": any_word},
        )
        return await _search(connection, [*exact, *prefixes], forms, limit)

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
