"""One tenant's memory inside one transaction of its store."""

import time
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge import ids, timestamps
from backends.knowledge.search.index import Index, Meaning
from backends.knowledge.tables import clock, transactions
from gateway.contract import Json
from gateway.errors import Fault, Kind

EntityType = Literal["entry", "triple", "entity"]
Op = Literal["CREATE", "UPDATE", "DELETE", "MERGE", "REVERT"]


_TAKING_BACK: Final[frozenset[Op]] = frozenset({"DELETE", "REVERT"})
_CLAIM: Final = update(clock).values(one=1).returning(clock.c.last_id, clock.c.last_number, clock.c.stored_bytes)
_KEEP: Final = update(clock)
_STORED: Final = select(func.coalesce(func.sum(func.length(transactions.c.changes)), 0))
_LAST: Final = select(clock.c.last_transaction)


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one row. A snapshot of None means that it is not there: not yet, or no longer."""

    kind: EntityType
    id: str
    before: Json | None
    after: Json | None


@dataclass(frozen=True, slots=True)
class Written:
    """A transaction that is part of this one commit."""

    id: str
    op: Op
    changes: tuple[Change, ...]


@dataclass(slots=True)
class _Hand:
    last_id: str
    last_number: int
    stored_bytes: int


@dataclass(slots=True)
class Book:
    """What every operation on the memory works with."""

    connection: AsyncConnection
    index: Index
    actor: str
    """Who acts, unless an argument says otherwise."""
    max_bytes: int | None = None
    """Of changes, beyond which nothing new is taken in."""
    meaning: Meaning | None = None
    written: list[Written] = field(default_factory=list[Written])
    now: str = field(default_factory=timestamps.now)
    rows: dict[tuple[EntityType, str], Any] = field(default_factory=dict[tuple[EntityType, str], Any])
    """What was read of single things and has not been written since; None where there is no such thing."""
    names: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """What was read of the names of things, until an entity is written."""
    _hand: _Hand | None = None

    async def begin_writing(self) -> None:
        """Wait for the other writers of this tenant. Every change begins here, before it reads what it changes."""
        # The update takes the row's lock where an engine lets writers run side by side.
        row = (await self.connection.execute(_CLAIM)).first()
        if row is None:
            await self.connection.execute(insert(clock).values(one=1, last_id="", last_number=0, stored_bytes=0))
            self._hand = _Hand("", 0, 0)
            return
        stored: int | None = row.stored_bytes
        if stored is None:
            stored = int((await self.connection.execute(_STORED)).scalar_one())
        self._hand = _Hand(row.last_id, row.last_number, stored)

    def new_id(self) -> str:
        assert self._hand is not None
        self._hand.last_id = ids.next_id(self._hand.last_id, time.time_ns() // 1_000_000)
        return self._hand.last_id

    def new_number(self) -> int:
        """The next place in the order of rows, which the index knows them by."""
        assert self._hand is not None
        self._hand.last_number += 1
        return self._hand.last_number

    def count(self, op: Op, size: int) -> None:
        """So many bytes more are written down. Raises `Fault(DENIED)` when there is no room for something new.

        What takes back is always let through: it can at most double what there is.
        """
        assert self._hand is not None
        self._hand.stored_bytes += size
        if self.max_bytes is not None and self._hand.stored_bytes > self.max_bytes and op not in _TAKING_BACK:
            raise Fault(
                Kind.DENIED,
                "This memory is full.",
                details={"stored_bytes": self._hand.stored_bytes, "max_bytes": self.max_bytes},
                suggested_fix="Have the operator raise `max_bytes` of this backend's options; deleting makes no room,"
                " since every change is kept.",
            )

    async def end_writing(self) -> None:
        """Keep what the next writer needs to know."""
        if self._hand is None:
            return
        values: Json = {"last_id": self._hand.last_id, "last_number": self._hand.last_number}
        values["stored_bytes"] = self._hand.stored_bytes
        if self.written:
            values["last_transaction"] = self.written[-1].id
        await self.connection.execute(_KEEP, values)

    async def last_transaction(self) -> str | None:
        """The newest transaction that this read sees."""
        return (await self.connection.execute(_LAST)).scalar()


MAX_PAGE_BYTES: Final = 512 * 1024
"""About where a page ends early: an answer holds its items twice and may be at most 8 MiB."""
