"""What a search leaves out, as conditions of SQL: pages are full because nothing is dropped afterwards."""

from typing import Any

from sqlalchemy import ColumnElement, TableClause, and_, func, or_, select

from backends.knowledge import times
from backends.knowledge.book import Book
from backends.knowledge.tables import entries, entry_tags
from gateway.contract import Json

ANY_TIME = "any"


def of_entries(book: Book, arguments: Json) -> ColumnElement[bool]:
    """Living, valid at the time asked about, and with all of the tags."""
    conditions = [entries.c.deleted_at.is_(None), *valid(book, entries, arguments)]
    given: list[str] = arguments.get("tags") or []
    if tags := sorted(set(given)):
        conditions.append(entries.c.id.in_(_tagged(tags)))
    return and_(*conditions)


def valid(book: Book, table: TableClause, arguments: Json) -> list[ColumnElement[bool]]:
    """Valid at `as_of`, by default now; `any` asks about all times."""
    given = arguments.get("as_of")
    if given == ANY_TIME:
        return []
    moment = book.now if given is None else times.parse(given, "as_of")
    return [
        or_(table.c.valid_from.is_(None), table.c.valid_from <= moment),
        or_(table.c.valid_to.is_(None), table.c.valid_to > moment),
    ]


def _tagged(tags: list[str]) -> Any:
    found = select(entry_tags.c.entry_id).where(entry_tags.c.tag.in_(tags))
    return found.group_by(entry_tags.c.entry_id).having(func.count() == len(tags))
