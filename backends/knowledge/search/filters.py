"""Search filters as SQL conditions. Filtering in the database keeps pages full."""

from functools import lru_cache
from typing import Literal

from sqlalchemy import bindparam, select

from backends.knowledge import timestamps
from backends.knowledge.paging import PagedQuery
from backends.knowledge.sql import Condition, statement
from backends.knowledge.tables import entries, entry_tags
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json

ANY_TIME = "any"


def entry_filter(unit: UnitOfWork, arguments: Json) -> Condition:
    """Match active entries that are valid at the requested time and have all requested tags."""
    active, tags = active_at(unit, "entries", arguments), distinct_tags(arguments)
    tagged = "".join(map(_tag_condition, range(len(tags))))
    return Condition(active.sql + tagged, {**active.values, **{f"tag{index}": tag for index, tag in enumerate(tags)}})


def _tag_condition(index: int) -> str:
    return f" AND EXISTS (SELECT 1 FROM entry_tags WHERE tag = :tag{index} AND entry_id = entries.id)"  # noqa: S608 - a number


def active_at(unit: UnitOfWork, table: Literal["entries", "triples"], arguments: Json) -> Condition:
    """Match active rows that are valid at `as_of`: by default now, `any` for all times."""
    value = arguments.get("as_of")
    if value == ANY_TIME:
        return Condition(f"{table}.deleted_at IS NULL", {})
    moment = unit.now if value is None else timestamps.parse(value, "as_of")
    sql = (
        f"{table}.deleted_at IS NULL AND ({table}.valid_from IS NULL OR {table}.valid_from <= :moment)"
        f" AND ({table}.valid_to IS NULL OR {table}.valid_to > :moment)"
    )
    return Condition(sql, {"moment": moment})


def entry_list(unit: UnitOfWork, arguments: Json) -> tuple[PagedQuery, Json]:
    """Return the paged query of all entries that match the filters, and its parameters."""
    tags = distinct_tags(arguments)
    if not tags:
        active = active_at(unit, "entries", arguments)
        return _paged_query(active.sql, by_tag=False), active.values
    rest = entry_filter(unit, {**arguments, "tags": tags[1:]})
    return _paged_query(rest.sql, by_tag=True), {**rest.values, "first_tag": tags[0]}


@lru_cache(maxsize=128)
def _paged_query(condition: str, *, by_tag: bool) -> PagedQuery:
    if not by_tag:
        return PagedQuery.build(select(entries).where(statement(condition)), entries)
    # The index on the first tag is already in id order, so a page reads no more rows than it returns.
    first = entry_tags.alias("first_tag")
    tagged = select(entries).select_from(first.join(entries, entries.c.id == first.c.entry_id))
    found = tagged.where(first.c.tag == bindparam("first_tag"), statement(condition))
    return PagedQuery.build(found, entries, order=first.c.entry_id)


def distinct_tags(arguments: Json) -> list[str]:
    value: list[str] = arguments.get("tags") or []
    return list(dict.fromkeys(value))
