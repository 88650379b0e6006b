"""The unit of work: one tenant's memory inside one database transaction. All operations of the backend take one."""

import time
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.knowledge import ids, timestamps
from backends.knowledge.search.index import Index, SemanticSearch
from backends.knowledge.tables import clock, transactions
from backends.knowledge.uris import EntityType
from gateway.contract import Json
from gateway.errors import Fault, Kind

Op = Literal["CREATE", "UPDATE", "DELETE", "MERGE", "REVERT"]


_REMOVING_OPS: Final[frozenset[Op]] = frozenset({"DELETE", "REVERT"})
_LOCK_CLOCK: Final = update(clock).values(one=1).returning(clock.c.last_id, clock.c.last_number, clock.c.stored_bytes)
_SAVE_CLOCK: Final = update(clock)
_SUM_STORED_BYTES: Final = select(func.coalesce(func.sum(func.length(transactions.c.changes)), 0))
_LAST_TRANSACTION: Final = select(clock.c.last_transaction)


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one row. `before` is None for a new row, `after` is None for a deleted one."""

    kind: EntityType
    id: str
    before: Json | None
    after: Json | None


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """A history transaction that is part of the current commit."""

    id: str
    op: Op
    changes: tuple[Change, ...]


@dataclass(slots=True)
class _WriterState:
    """The values of the `clock` row while this unit holds its lock."""

    last_id: str
    last_number: int
    stored_bytes: int


@dataclass(slots=True)
class UnitOfWork:
    """The connection, search index and caches of one database transaction.

    Call `begin_writing` before the first read of a change, and `end_writing` before the commit.
    """

    connection: AsyncConnection
    index: Index
    actor: str
    """Recorded as the author of a change unless the call supplies an `actor` argument."""
    max_bytes: int | None = None
    """Quota for the stored bytes of all changes; None is unlimited."""
    semantic: SemanticSearch | None = None
    fuse_ranks: bool = False
    """Whether word and semantic hits are combined by their ranks instead of their scores."""
    languages: tuple[str, ...] = ("english",)
    """Languages whose word forms a search finds."""
    recorded: list[RecordedTransaction] = field(default_factory=list[RecordedTransaction])
    now: str = field(default_factory=timestamps.now)
    row_cache: dict[tuple[EntityType, str], Any] = field(default_factory=dict[tuple[EntityType, str], Any])
    """Rows read by id and not written since; None for an id without a row."""
    name_cache: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Equivalent names by name key; cleared when an entity is written."""
    _writer_state: _WriterState | None = None

    async def begin_writing(self) -> None:
        """Lock the tenant's memory for writing. Call it before reading the rows that will be changed."""
        if self._writer_state is not None:
            return
        # On engines with concurrent writers, the UPDATE takes the row lock that serializes them.
        row = (await self.connection.execute(_LOCK_CLOCK)).first()
        if row is None:
            await self.connection.execute(insert(clock).values(one=1, last_id="", last_number=0, stored_bytes=0))
            self._writer_state = _WriterState("", 0, 0)
            return
        stored: int | None = row.stored_bytes
        if stored is None:
            stored = int((await self.connection.execute(_SUM_STORED_BYTES)).scalar_one())
        self._writer_state = _WriterState(row.last_id, row.last_number, stored)

    def new_id(self) -> str:
        assert self._writer_state is not None
        self._writer_state.last_id = ids.next_id(self._writer_state.last_id, time.time_ns() // 1_000_000)
        return self._writer_state.last_id

    def observe_id(self, id_: str) -> None:
        """Make later ids sort after this one, which another memory made."""
        assert self._writer_state is not None
        self._writer_state.last_id = max(self._writer_state.last_id, id_)

    def new_number(self) -> int:
        """Return the next row number; the full-text index refers to rows by number."""
        assert self._writer_state is not None
        self._writer_state.last_number += 1
        return self._writer_state.last_number

    def add_stored_bytes(self, op: Op, size: int) -> None:
        """Add to the stored bytes. Raises `Fault(DENIED)` when the quota is exceeded.

        Deletes and reverts are always allowed: they can at most double the stored bytes.
        """
        assert self._writer_state is not None
        self._writer_state.stored_bytes += size
        if self.max_bytes is not None and self._writer_state.stored_bytes > self.max_bytes and op not in _REMOVING_OPS:
            raise Fault(
                Kind.DENIED,
                "This memory is full.",
                details={"stored_bytes": self._writer_state.stored_bytes, "max_bytes": self.max_bytes},
                suggested_fix="Ask the operator to raise `max_bytes` in this backend's options. Deleting entries does"
                " not free space, because every change is kept.",
            )

    async def end_writing(self) -> None:
        """Save the counters for the next writer."""
        if self._writer_state is None:
            return
        values: Json = {"last_id": self._writer_state.last_id, "last_number": self._writer_state.last_number}
        values["stored_bytes"] = self._writer_state.stored_bytes
        if self.recorded:
            newest = max(transaction.id for transaction in self.recorded)
            values["last_transaction"] = max(newest, await self.last_transaction() or "")
        await self.connection.execute(_SAVE_CLOCK, values)

    async def last_transaction(self) -> str | None:
        """Return the id of the newest transaction visible to this unit."""
        return (await self.connection.execute(_LAST_TRANSACTION)).scalar()


MAX_PAGE_BYTES: Final = 512 * 1024
"""Approximate size at which a page ends early. A result holds its items twice and may be at most 8 MiB."""
