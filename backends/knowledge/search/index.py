"""The one place where engines differ: what a full-text index can be asked. The database keeps it by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, FromClause, TextClause
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.sql import Condition
from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that a search found, and how well it fits: 1 is the best of this search."""

    number: int
    topic_key: str
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class Shortcut:
    """A way to rows of `triples` by the index: where they are read from, and in which order they come at no cost."""

    source: FromClause
    condition: ColumnElement[bool] | TextClause
    order: ColumnElement[Any]


class Index(Protocol):
    """Holds exactly the living rows; the tables stay the truth."""

    def listed(self, value: str) -> str:
        """A SELECT of the texts in the JSON array that the named value holds."""
        ...

    def numbers(self, value: str) -> str:
        """The same for whole numbers."""
        ...

    async def lexical(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        """Entries with any of the words in topic, content or tags that meet the condition, the best first."""
        ...

    async def beginning(
        self, connection: AsyncConnection, words: Sequence[str], condition: Condition, limit: int
    ) -> list[Hit]:
        """The same for entries with words that begin with any of these."""
        ...

    def narrow(self, wanted: Mapping[str, Sequence[str]]) -> tuple[Shortcut, Json] | None:
        """A shortcut to the triples whose columns each contain one of the wanted texts, with its values.

        It leads to all of them, and to others too: the statement itself says what is wanted. None when there is none.
        """
        ...


class Meaning(Protocol):
    """Optional: how near entries are to a text in meaning. A memory without it ranks by words and graph alone.

    The option `meaning` names one. It keeps what it needs by itself, and reads the tables by the connection.
    """

    async def similar(self, connection: AsyncConnection, text: str, condition: Condition, limit: int) -> list[Hit]:
        """At most so many rows of `entries` that meet the condition, the nearest first."""
        ...
