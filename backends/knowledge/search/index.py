"""The one place where engines differ: what a full-text index can be told and asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that a search found, and how well it fits: 1 is the best of this search."""

    number: int
    topic_key: str
    score: float


class Index(Protocol):
    """Holds exactly the living rows; the tables stay the truth."""

    async def prepare(self, connection: AsyncConnection) -> None:
        """Make the index where there is none yet. Harmless when there is one."""
        ...

    async def add_entry(self, connection: AsyncConnection, number: int, entry: Json) -> None: ...

    async def remove_entry(self, connection: AsyncConnection, number: int, entry: Json) -> None:
        """`entry` is what was added under this number."""
        ...

    async def add_triple(self, connection: AsyncConnection, number: int, triple: Json) -> None: ...

    async def remove_triple(self, connection: AsyncConnection, number: int, triple: Json) -> None: ...

    async def lexical(
        self, connection: AsyncConnection, words: Sequence[str], condition: ColumnElement[bool], limit: int
    ) -> list[Hit]:
        """Entries with any of the words in topic, content or tags that meet the condition, the best first."""
        ...

    async def beginning(
        self, connection: AsyncConnection, words: Sequence[str], condition: ColumnElement[bool], limit: int
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

    async def similar(
        self, connection: AsyncConnection, text: str, condition: ColumnElement[bool], limit: int
    ) -> list[Hit]: ...
