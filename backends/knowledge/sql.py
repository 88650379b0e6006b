"""Pieces of SQL: statements that are parsed once, and conditions with the values they name."""

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

    def bound(self) -> TextClause:
        return text(self.sql).bindparams(**self.values)
