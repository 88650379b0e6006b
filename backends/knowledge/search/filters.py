"""What a search leaves out, as conditions of SQL: pages are full because nothing is dropped afterwards."""

from functools import lru_cache
from typing import Literal

from sqlalchemy import bindparam, select

from backends.knowledge import timestamps
from backends.knowledge.paging import Listing
from backends.knowledge.sql import Condition, statement
from backends.knowledge.tables import entries, entry_tags
from backends.knowledge.unit_of_work import Book
from gateway.contract import Json

ANY_TIME = "any"


def of_entries(book: Book, arguments: Json) -> Condition:
    """Living, valid at the time asked about, and with all of the tags."""
    alive, tags = alive_at(book, "entries", arguments), tags_of(arguments)
    tagged = "".join(map(_tagged, range(len(tags))))
    return Condition(alive.sql + tagged, {**alive.values, **{f"tag{at}": tag for at, tag in enumerate(tags)}})


def _tagged(at: int) -> str:
    return f" AND EXISTS (SELECT 1 FROM entry_tags WHERE tag = :tag{at} AND entry_id = entries.id)"  # noqa: S608 - a number


def alive_at(book: Book, table: Literal["entries", "triples"], arguments: Json) -> Condition:
    """Living, and valid at `as_of`, by default now; `any` asks about all times."""
    given = arguments.get("as_of")
    if given == ANY_TIME:
        return Condition(f"{table}.deleted_at IS NULL", {})
    moment = book.now if given is None else timestamps.parse(given, "as_of")
    sql = (
        f"{table}.deleted_at IS NULL AND ({table}.valid_from IS NULL OR {table}.valid_from <= :moment)"
        f" AND ({table}.valid_to IS NULL OR {table}.valid_to > :moment)"
    )
    return Condition(sql, {"moment": moment})


def listed(book: Book, arguments: Json) -> tuple[Listing, Json]:
    """All entries that meet the conditions of a search, and the values that the list is read with."""
    tags = tags_of(arguments)
    if not tags:
        alive = alive_at(book, "entries", arguments)
        return _listing(alive.sql, by_tag=False), alive.values
    rest = of_entries(book, {**arguments, "tags": tags[1:]})
    return _listing(rest.sql, by_tag=True), {**rest.values, "first_tag": tags[0]}


@lru_cache(maxsize=128)
def _listing(condition: str, *, by_tag: bool) -> Listing:
    if not by_tag:
        return Listing.of(select(entries).where(statement(condition)), entries)
    # The first tag's own rows are in order already: a page reads no more of them than it shows.
    first = entry_tags.alias("first_tag")
    tagged = select(entries).select_from(first.join(entries, entries.c.id == first.c.entry_id))
    found = tagged.where(first.c.tag == bindparam("first_tag"), statement(condition))
    return Listing.of(found, entries, order=first.c.entry_id)


def tags_of(arguments: Json) -> list[str]:
    given: list[str] = arguments.get("tags") or []
    return list(dict.fromkeys(given))
