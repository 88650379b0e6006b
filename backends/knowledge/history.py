"""Reads the history: every transaction of the memory, with snapshots before and after."""

import json
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import bindparam, select, union_all

from backends.knowledge.paging import Page, PagedQuery, fetch_page
from backends.knowledge.tables import touches, transactions
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json

DEFAULT_LIMIT = 20

TRANSACTIONS_OF_ENTITY: Final = union_all(
    select(transactions.c.id).where(transactions.c.entity_id == bindparam("entity_id")),
    select(touches.c.transaction_id).where(touches.c.entity_id == bindparam("entity_id")),
)
"""Ids of the transactions that changed `entity_id`, as their main entity or as a related one."""
_FILTERS: Final = {
    "entity_type": transactions.c.entity_type == bindparam("entity_type"),
    "actor": transactions.c.actor == bindparam("actor"),
    "entity_id": transactions.c.id.in_(TRANSACTIONS_OF_ENTITY),
}
_SUMMARIES: Final = PagedQuery.build(
    select(*(column for column in transactions.c if column.name != "changes")), transactions
)
_BY_ID: Final = select(transactions).where(transactions.c.id == bindparam("transaction_id"))


async def history(unit: UnitOfWork, arguments: Json) -> Page:
    """Return a page of transactions with snapshots."""
    filters = {name: arguments[name] for name in _FILTERS if arguments.get(name) is not None}
    limit = arguments.get("limit", DEFAULT_LIMIT)
    return await fetch_page(unit, _paged_query(tuple(filters)), _full, limit, arguments.get("cursor"), filters)


@lru_cache
def _paged_query(filters: tuple[str, ...]) -> PagedQuery:
    return PagedQuery.build(select(transactions).where(*(_FILTERS[name] for name in filters)), transactions)


async def list_summaries(unit: UnitOfWork, limit: int, cursor: str | None) -> Page:
    """Return a page of transactions without snapshots."""
    return await fetch_page(unit, _SUMMARIES, _summary, limit, cursor)


async def find(unit: UnitOfWork, transaction_id: str) -> Json | None:
    row = (await unit.connection.execute(_BY_ID, {"transaction_id": transaction_id})).first()
    return _full(row) if row is not None else None


def _summary(row: Any) -> Json:
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


def _full(row: Any) -> Json:
    changes: list[Json] = json.loads(row.changes)
    main = next(change for change in changes if change["id"] == row.entity_id)
    related = [
        {"entity_type": change["kind"], "entity_id": change["id"], **_snapshots(change)}
        for change in changes
        if change is not main
    ]
    return {**_summary(row), **_snapshots(main), "related": related}


def _snapshots(change: Json) -> Json:
    return {"before_snapshot": change["before"], "after_snapshot": change["after"]}
