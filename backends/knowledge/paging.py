"""Pages: newest first, from where the last one ended, never larger than an answer may be."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, TableClause, bindparam

from backends.knowledge.ids import ULID
from backends.knowledge.unit_of_work import MAX_PAGE_BYTES, Book
from gateway.contract import Json
from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Json]
    next_cursor: str | None

    def as_json(self) -> Json:
        return {"items": self.items, "next_cursor": self.next_cursor}


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """A list that is read in pages, newest first: the statements of its first page and of those after it."""

    first: Select[Any]
    onwards: Select[Any]

    @classmethod
    def of(cls, statement: Select[Any], table: TableClause, order: ColumnElement[Any] | None = None) -> "Listing":
        """`order` is another column in the order of ids, where the statement has one that costs less."""
        newest = (table.c.id if order is None else order).desc()
        older = statement.where(table.c.id < bindparam("older_than"))
        size = bindparam("page_size", type_=Integer)
        return cls(*(each.order_by(newest).limit(size) for each in (statement, older)))


async def newest_first(
    book: Book,
    listing: Listing,
    from_row: Callable[[Any], Json],
    limit: int,
    cursor: str | None,
    values: Json | None = None,
) -> Page:
    """Ids are in order of commit, so what others write meanwhile lands before the first page, never between two."""
    given = {**(values or {}), "page_size": limit + 1}
    if cursor is not None:
        given["older_than"] = _id_of(cursor)
    rows = await book.connection.execute(listing.first if cursor is None else listing.onwards, given)
    found = [from_row(row) for row in rows]
    shown = fitting(found[:limit])
    more = len(found) > len(shown)
    return Page(shown, cursor_of(shown[-1]["id"]) if more else None)


def fitting(items: list[Json]) -> list[Json]:
    """As many from the beginning as an answer has room for; at least one."""
    size = 0
    for count, item in enumerate(items):
        size += len(json.dumps(item, ensure_ascii=False).encode())
        if size > MAX_PAGE_BYTES and count:
            return items[:count]
    return items


def cursor_of(word: str) -> str:
    return urlsafe_b64encode(word.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError as exc:
        raise bad_cursor() from exc


def bad_cursor() -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        "That cursor is not one that this search or list gave.",
        details={"validation_path": "input.cursor", "validation_rule": "cursor"},
        suggested_fix="Start again without a cursor.",
    )


def _id_of(cursor: str) -> str:
    word = read_cursor(cursor)
    if not ULID.fullmatch(word):
        raise bad_cursor()
    return word
