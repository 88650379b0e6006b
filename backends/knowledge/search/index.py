"""Interfaces of the full-text index and of the optional semantic search.

The full-text index is the only part of the backend that differs between database engines. Database triggers and
generated columns maintain it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, FromClause, TextClause
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.sql import Condition
from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry found by a search, with its score relative to the best hit, which has 1."""

    number: int
    topic_key: str
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class IndexScan:
    """An index scan over `triples`: its FROM clause, its condition, and the order in which it returns rows for free."""

    source: FromClause
    condition: ColumnElement[bool] | TextClause
    order: ColumnElement[Any]


class Index(Protocol):
    """Full-text index of one database engine. It contains exactly the active rows."""

    def json_strings(self, value: str) -> str:
        """Return a SELECT of the strings in the JSON array of the named parameter."""
        ...

    def json_integers(self, value: str) -> str:
        """Return a SELECT of the integers in the JSON array of the named parameter."""
        ...

    async def search_words(
        self,
        connection: AsyncConnection,
        words: Sequence[str],
        condition: Condition,
        limit: int,
        languages: tuple[str, ...] = (),
    ) -> list[Hit]:
        """Find entries that match the condition and have any of the words in topic, content or tags, best first.

        With languages, also entries that have another form of a word.
        """
        ...

    async def search_prefixes(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        """Find entries with words that start with any of the given words, best first."""
        ...

    def narrow_triples(self, columns: Mapping[str, Sequence[str]]) -> tuple[IndexScan, Json] | None:
        """Return an index scan for triples whose columns each contain one of the texts, with its parameters.

        The scan may return additional rows, so the statement must repeat the filter. None if the index cannot help.
        """
        ...


class SemanticSearch(Protocol):
    """Optional semantic search, configured by the option `meaning`. Without it, ranking uses words and graph only.

    An implementation manages its own data and reads the tables through the connection.
    """

    async def similar(self, connection: AsyncConnection, text: str, condition: Condition, limit: int) -> list[Hit]:
        """Return at most `limit` entries that match the condition, the most similar first."""
        ...
