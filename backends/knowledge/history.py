"""What was changed, by whom and how: the transactions of the memory."""

import json
from typing import Any

from sqlalchemy import CompoundSelect, select, union_all

from backends.knowledge.book import Book
from backends.knowledge.paging import Page, newest_first
from backends.knowledge.tables import touches, transactions
from gateway.contract import Json

DEFAULT_LIMIT = 20


async def history(book: Book, arguments: Json) -> Page:
    """With snapshots, for reading what a fact said before."""
    statement = select(transactions)
    if (kind := arguments.get("entity_type")) is not None:
        statement = statement.where(transactions.c.entity_type == kind)
    if (actor := arguments.get("actor")) is not None:
        statement = statement.where(transactions.c.actor == actor)
    if (entity_id := arguments.get("entity_id")) is not None:
        statement = statement.where(transactions.c.id.in_(touching(entity_id)))
    limit = arguments.get("limit", DEFAULT_LIMIT)
    return await newest_first(book, statement, transactions, _whole, limit, arguments.get("cursor"))


def touching(entity_id: str) -> CompoundSelect[tuple[str]]:
    """Ids of the transactions that changed it, under its name or beside another's."""
    under = select(transactions.c.id).where(transactions.c.entity_id == entity_id)
    return union_all(under, select(touches.c.transaction_id).where(touches.c.entity_id == entity_id))


async def outlines(book: Book, limit: int, cursor: str | None) -> Page:
    """Without snapshots, for seeing what happened."""
    columns = [column for column in transactions.c if column.name != "changes"]
    return await newest_first(book, select(*columns), transactions, _outline, limit, cursor)


async def one(book: Book, transaction_id: str) -> Json | None:
    row = (await book.connection.execute(select(transactions).where(transactions.c.id == transaction_id))).first()
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
