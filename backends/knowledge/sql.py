"""Cached SQL statements and reusable conditions.

A SQLAlchemy statement contains reference cycles, so a statement built for a single call stays in memory until the
garbage collector runs. Statements are therefore built once and receive their values as parameters.
"""

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import TextClause, text

from gateway.contract import Json


# One statement per shape of search: shapes differ in the number of tags, never in values.
@lru_cache(maxsize=512)
def statement(sql: str) -> TextClause:
    """Return the cached statement of an SQL text with `:name` parameters."""
    return text(sql)


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL condition on the rows of one table, qualified with the table's name, and its parameters."""

    sql: str
    values: Json


def contains_pattern(text: str) -> str:
    """Return the LIKE pattern (escape character `/`) that matches any string containing the text."""
    escaped = text.replace("/", "//").replace("%", "/%").replace("_", "/_")
    return f"%{escaped}%"
