"""Pages: newest first, from where the last one ended, never larger than an answer may be."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, TableClause

from backends.knowledge.book import MAX_PAGE_BYTES, Book
from backends.knowledge.ids import ULID
from gateway.contract import Json
from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Json]
    next_cursor: str | None

    def as_json(self) -> Json:
        return {"items": self.items, "next_cursor": self.next_cursor}


async def newest_first(
    book: Book,
    statement: Select[Any],
    table: TableClause,
    from_row: Callable[[Any], Json],
    limit: int,
    cursor: str | None,
    order: ColumnElement[Any] | None = None,
) -> Page:
    """Ids are in order of commit, so what others write meanwhile lands before the first page, never between two.

    `order` is another column in that same order, where the statement has one that costs less.
    """
    if cursor is not None:
        statement = statement.where(_before(table, cursor))
    newest = (table.c.id if order is None else order).desc()
    rows = await book.connection.execute(statement.order_by(newest).limit(limit + 1))
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


def _before(table: TableClause, cursor: str) -> ColumnElement[bool]:
    word = read_cursor(cursor)
    if not ULID.fullmatch(word):
        raise bad_cursor()
    return table.c.id < word
