"""PostgreSQL: the words of each entry are a column that fills itself; what it finds it ranks by weight and number."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.search.index import Hit, Shortcut
from backends.knowledge.sql import Condition, statement
from gateway.contract import Json

_FOUND: Final = """
SELECT entries.number, entries.topic_key, ts_rank(ARRAY[0.1, 0.2, 0.5, 1.0], entries.words, sought.words) AS fit
FROM to_tsquery('simple', :sought) AS sought (words), entries
WHERE {condition} AND entries.words @@ sought.words
ORDER BY fit DESC, entries.number LIMIT :limit
"""
_LISTED: Final = "SELECT value FROM jsonb_array_elements_text(CAST({value} AS jsonb)) AS given (value)"
_NUMBERS: Final = "SELECT CAST(value AS BIGINT) FROM jsonb_array_elements_text(CAST({value} AS jsonb)) AS given (value)"
_SIGNS: Final = re.compile(r"['\\]")


class TextSearch:
    """`Index`, for PostgreSQL."""

    def listed(self, value: str) -> str:
        return _LISTED.format(value=value)

    def numbers(self, value: str) -> str:
        return _NUMBERS.format(value=value)

    async def lexical(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        return await _search(connection, [_quoted(word) for word in words], condition, limit)

    async def beginning(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        return await _search(connection, [f"{_quoted(word)}:*" for word in words], condition, limit)

    def narrow(self, wanted: Mapping[str, Sequence[str]]) -> tuple[Shortcut, Json] | None:
        return None


async def _search(connection: AsyncConnection, sought: list[str], condition: Condition, limit: int) -> list[Hit]:
    if not sought:
        return []
    values: Json = {"sought": " | ".join(sought), "limit": limit}
    made = statement(_FOUND.replace("{condition}", condition.sql))
    rows = (await connection.execute(made, values | condition.values)).all()
    best = rows[0][2] if rows else 1.0
    return [Hit(number, topic, round(fit / best, 6)) for number, topic, fit in rows]


def _quoted(word: str) -> str:
    return f"'{_SIGNS.sub('', word)}'"
