"""What was changed, by whom and how: the transactions of the memory."""

import json
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import bindparam, select, union_all

from backends.knowledge.paging import Listing, Page, newest_first
from backends.knowledge.tables import touches, transactions
from backends.knowledge.unit_of_work import Book
from gateway.contract import Json

DEFAULT_LIMIT = 20

TOUCHING: Final = union_all(
    select(transactions.c.id).where(transactions.c.entity_id == bindparam("entity_id")),
    select(touches.c.transaction_id).where(touches.c.entity_id == bindparam("entity_id")),
)
"""Ids of the transactions that changed the thing `entity_id`, under its name or beside another's."""
_FILTERS: Final = {
    "entity_type": transactions.c.entity_type == bindparam("entity_type"),
    "actor": transactions.c.actor == bindparam("actor"),
    "entity_id": transactions.c.id.in_(TOUCHING),
}
_OUTLINES: Final = Listing.of(select(*(column for column in transactions.c if column.name != "changes")), transactions)
_ONE: Final = select(transactions).where(transactions.c.id == bindparam("transaction_id"))


async def history(book: Book, arguments: Json) -> Page:
    """With snapshots, for reading what a fact said before."""
    asked = {name: arguments[name] for name in _FILTERS if arguments.get(name) is not None}
    limit = arguments.get("limit", DEFAULT_LIMIT)
    return await newest_first(book, _listing(tuple(asked)), _whole, limit, arguments.get("cursor"), asked)


@lru_cache
def _listing(filters: tuple[str, ...]) -> Listing:
    return Listing.of(select(transactions).where(*(_FILTERS[name] for name in filters)), transactions)


async def outlines(book: Book, limit: int, cursor: str | None) -> Page:
    """Without snapshots, for seeing what happened."""
    return await newest_first(book, _OUTLINES, _outline, limit, cursor)


async def one(book: Book, transaction_id: str) -> Json | None:
    row = (await book.connection.execute(_ONE, {"transaction_id": transaction_id})).first()
    return _whole(row) if row is not None else None


def _outline(row: Any) -> Json:
    return {
        "id": row.id,
        "op": row.op,
        "entity_type": row.entity_type,
        "entity_id": row.entity_id,
        "actor": row.actor,
        "recorded_at": row.recorded_at,
        "reverts": row.reverts,
        "reverted_by": row.reverted_by,
    }


def _whole(row: Any) -> Json:
    changes: list[Json] = json.loads(row.changes)
    main = next(change for change in changes if change["id"] == row.entity_id)
    related = [
        {"entity_type": change["kind"], "entity_id": change["id"], **_snapshots(change)}
        for change in changes
        if change is not main
    ]
    return {**_outline(row), **_snapshots(main), "related": related}


def _snapshots(change: Json) -> Json:
    return {"before_snapshot": change["before"], "after_snapshot": change["after"]}
