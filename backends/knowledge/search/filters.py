"""What a search leaves out, as conditions of SQL: pages are full because nothing is dropped afterwards."""

from typing import Any

from sqlalchemy import ColumnElement, Select, TableClause, and_, exists, or_, select

from backends.knowledge import times
from backends.knowledge.book import Book
from backends.knowledge.tables import entries, entry_tags
from gateway.contract import Json

ANY_TIME = "any"


def of_entries(book: Book, arguments: Json) -> ColumnElement[bool]:
    """Living, valid at the time asked about, and with all of the tags."""
    return and_(_alive(book, arguments), *map(_tagged, tags_of(arguments)))


def listed(book: Book, arguments: Json) -> tuple[Select[Any], ColumnElement[Any]]:
    """All entries that meet the same conditions, and the column that puts them in order of creation."""
    statement, tags = select(entries).where(_alive(book, arguments)), tags_of(arguments)
    if not tags:
        return statement, entries.c.id
    # The tag's own rows are in order already: a page reads no more of them than it shows.
    first = statement.select_from(entry_tags.join(entries, entries.c.id == entry_tags.c.entry_id))
    first = first.where(entry_tags.c.tag == tags[0], *map(_tagged, tags[1:]))
    return first, entry_tags.c.entry_id


def tags_of(arguments: Json) -> list[str]:
    given: list[str] = arguments.get("tags") or []
    return list(dict.fromkeys(given))


def _alive(book: Book, arguments: Json) -> ColumnElement[bool]:
    return and_(entries.c.deleted_at.is_(None), *valid(book, entries, arguments))


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


def _tagged(tag: str) -> ColumnElement[bool]:
    other = entry_tags.alias()
    return exists().where(other.c.tag == tag, other.c.entry_id == entries.c.id)
