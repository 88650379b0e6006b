"""Searches triples by substrings of subject, predicate and object, or by any name of an entity."""

from functools import lru_cache
from typing import Final

from sqlalchemy import ColumnElement, bindparam, or_, select

from backends.knowledge.entity_names import equivalent_names
from backends.knowledge.paging import Page, PagedQuery, fetch_page
from backends.knowledge.row_mapping import triple_from_row
from backends.knowledge.search.filters import active_at
from backends.knowledge.search.index import IndexScan
from backends.knowledge.sql import contains_pattern, statement
from backends.knowledge.tables import triples
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json

_PARTS: Final = ("subject", "predicate", "object")
_DEFAULT_LIMIT: Final = 50


async def query_graph(unit: UnitOfWork, arguments: Json) -> Page:
    """Return a page of active triples whose parts contain all requested texts, newest first."""
    active = active_at(unit, "triples", arguments)
    values: Json = {**active.values}
    columns: dict[str, list[str]] = {}
    for part in _PARTS:
        if key := fold(arguments.get(part) or ""):
            names = sorted(await equivalent_names(unit, key) - {key}) if part != "predicate" else []
            columns[f"{part}_key"] = [key, *names]
            values |= {f"{part}_key_like": contains_pattern(key), f"{part}_key_names": names}
    if entry_id := arguments.get("entry_id"):
        values["of_entry"] = entry_id
    scan, match = unit.index.narrow_triples(columns) or (None, {})
    shape = tuple((column, len(keys) > 1) for column, keys in columns.items())
    listing = _paged_query(active.sql, shape, scan, of_entry=bool(entry_id))
    limit = arguments.get("limit", _DEFAULT_LIMIT)
    return await fetch_page(unit, listing, triple_from_row, limit, arguments.get("cursor"), values | match)


@lru_cache(maxsize=128)
def _paged_query(
    active: str, columns: tuple[tuple[str, bool], ...], scan: IndexScan | None, *, of_entry: bool
) -> PagedQuery:
    """Build the query. `columns` pairs each filtered column with whether it may also equal other entity names."""
    found = select(triples).where(
        statement(active), *(_part_condition(column, has_names=has_names) for column, has_names in columns)
    )
    if of_entry:
        found = found.where(triples.c.entry_id == bindparam("of_entry"))
    if scan is None:
        return PagedQuery.build(found, triples)
    joined = found.select_from(scan.source).where(scan.condition)
    return PagedQuery.build(joined, triples, order=scan.order)


def _part_condition(column: str, *, has_names: bool) -> ColumnElement[bool]:
    key = triples.c[column]
    contains = key.like(bindparam(f"{column}_like"), escape="/")
    return or_(contains, key.in_(bindparam(f"{column}_names", expanding=True))) if has_names else contains
