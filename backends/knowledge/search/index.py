"""The one place where engines differ: what a full-text index can be asked. The database keeps it by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge.sql import Condition


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that a search found, and how well it fits: 1 is the best of this search."""

    number: int
    topic_key: str
    score: float


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

    def narrow(
        self, statement: Select[Any], wanted: Mapping[str, Sequence[str]]
    ) -> tuple[Select[Any], ColumnElement[Any]]:
        """The statement on `triples`, helped by the index, and the column that puts it in order of creation.

        Every triple whose columns each contain one of the wanted texts is still found; others may be, too: the
        statement itself says what is wanted.
        """
        ...


class Meaning(Protocol):
    """Optional: how near entries are to a text in meaning. A memory without it ranks by words and graph alone."""

    async def similar(self, connection: AsyncConnection, text: str, condition: Condition, limit: int) -> list[Hit]: ...
