"""Pieces of SQL: statements that are made once, and conditions with the values they name.

A statement of SQLAlchemy refers to itself, so one that is made for a single call stays in memory until the garbage
collector comes by. What every call runs is therefore made once and given its values when it runs.
"""

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import TextClause, text

from gateway.contract import Json


# There are as many as there are shapes of searches: they differ in the number of tags, never in the values.
@lru_cache(maxsize=512)
def statement(sql: str) -> TextClause:
    """With `:name` for each value."""
    return text(sql)


@dataclass(frozen=True, slots=True)
class Condition:
    """Of the rows of one table, under its own name."""

    sql: str
    values: Json


def like(text: str) -> str:
    """The pattern of what contains the text, for LIKE with `/` as its escape."""
    escaped = text.replace("/", "//").replace("%", "/%").replace("_", "/_")
    return f"%{escaped}%"
