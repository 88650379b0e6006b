"""Keyset pagination: newest first, with opaque cursors and a size limit per page."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, TableClause, bindparam

from backends.knowledge.ids import ULID
from backends.knowledge.unit_of_work import MAX_PAGE_BYTES, UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Json]
    next_cursor: str | None

    def as_json(self) -> Json:
        return {"items": self.items, "next_cursor": self.next_cursor}


@dataclass(frozen=True, slots=True, eq=False)
class PagedQuery:
    """The SQL statements of a paged list, newest first: one for the first page, one for the following pages."""

    first: Select[Any]
    following: Select[Any]
    kind: str
    """Name of the listed table; a cursor of another list is rejected."""

    @classmethod
    def build(cls, statement: Select[Any], table: TableClause, order: ColumnElement[Any] | None = None) -> "PagedQuery":
        """Build both statements. `order` is an alternative sort column with the same order as the ids but cheaper."""
        newest = (table.c.id if order is None else order).desc()
        following = statement.where(table.c.id < bindparam("older_than"))
        size = bindparam("page_size", type_=Integer)
        first, following = (query.order_by(newest).limit(size) for query in (statement, following))
        return cls(first, following, table.name)


async def fetch_page(
    unit: UnitOfWork,
    listing: PagedQuery,
    from_row: Callable[[Any], Json],
    limit: int,
    cursor: str | None,
    values: Json | None = None,
) -> Page:
    """Read one page.

    Ids are in order of commit. Rows written during paging therefore sort before the first page, never between pages.
    """
    parameters = {**(values or {}), "page_size": limit + 1}
    if cursor is not None:
        parameters["older_than"] = _decode_id(cursor, listing.kind)
    rows = await unit.connection.execute(listing.first if cursor is None else listing.following, parameters)
    found = [from_row(row) for row in rows]
    items = fit_page(found[:limit])
    has_more = len(found) > len(items)
    return Page(items, encode_cursor(f"{listing.kind}:{items[-1]['id']}") if has_more else None)


def fit_page(items: list[Json]) -> list[Json]:
    """Return as many leading items as fit into a page; at least one."""
    size = 0
    for count, item in enumerate(items):
        size += len(json.dumps(item, ensure_ascii=False).encode())
        if size > MAX_PAGE_BYTES and count:
            return items[:count]
    return items


def encode_cursor(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError as exc:
        raise invalid_cursor() from exc


def invalid_cursor(message: str = "The cursor is not valid for this query.") -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        message,
        details={"validation_path": "input.cursor", "validation_rule": "cursor"},
        suggested_fix="Start again without a cursor.",
    )


def _decode_id(cursor: str, kind: str) -> str:
    owner, _, id_ = decode_cursor(cursor).partition(":")
    if not ULID.fullmatch(id_):
        raise invalid_cursor()
    if owner != kind:
        raise invalid_cursor(f"The cursor belongs to a list of {owner}, not of {kind}.")
    return id_
