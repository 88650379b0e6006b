"""Walks the graph from a name: level by level, each triple and each name once, within bounds."""

from typing import Any, Final, Literal

from sqlalchemy import Integer, Select, bindparam, select

from backends.knowledge.entity_names import equivalent_names, expand_names
from backends.knowledge.row_mapping import triple_from_row
from backends.knowledge.search.filters import active_at
from backends.knowledge.sql import statement
from backends.knowledge.tables import triples
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind

ARGUMENTS: Final = ("depth", "direction", "predicates")
MAX_NAMES: Final = 2_000
"""Maximum number of names visited: bounds the work of one call in a dense graph."""
_DEFAULT_LIMIT: Final = 50

Direction = Literal["out", "in", "both"]


def is_walk(arguments: Json) -> bool:
    return any(arguments.get(name) is not None for name in ARGUMENTS)


async def walk(unit: UnitOfWork, arguments: Json) -> Json:
    """Return the triples reached from `subject`, or against their direction from `object`, each with its `hops`."""
    start, direction = _start(arguments)
    limit, depth = arguments.get("limit", _DEFAULT_LIMIT), arguments.get("depth", 1)
    wanted: list[str] = arguments.get("predicates") or []
    predicates = sorted(set(map(fold, wanted)))
    walker = _Walk(unit, arguments, direction, predicates, limit)
    await walker.run(await equivalent_names(unit, start), depth)
    return {"items": walker.found, "next_cursor": None, "truncated": walker.truncated}


def _start(arguments: Json) -> tuple[str, Direction]:
    subject, object_ = (fold(arguments.get(name) or "") for name in ("subject", "object"))
    if bool(subject) == bool(object_) or arguments.get("predicate") or arguments.get("cursor"):
        raise Fault(
            Kind.INVALID_INPUT,
            "A walk starts at one name: supply either subject or object, and no predicate or cursor.",
            details={"validation_path": "input.subject", "validation_rule": "walk"},
            suggested_fix="Name the start in subject; limit the relations with predicates and the size with limit.",
        )
    return subject or object_, arguments.get("direction") or ("out" if subject else "in")


class _Walk:
    """One breadth-first walk. Names already visited are not expanded again, so a cycle ends."""

    def __init__(
        self, unit: UnitOfWork, arguments: Json, direction: Direction, predicates: list[str], limit: int
    ) -> None:
        self._unit = unit
        self._active = active_at(unit, "triples", arguments)
        self._columns = {"out": ("subject_key",), "in": ("object_key",), "both": ("subject_key", "object_key")}[
            direction
        ]
        self._predicates = predicates
        self._limit = limit
        self._seen: set[str] = set()
        self.found: list[Json] = []
        self.truncated = False

    async def run(self, names: set[str], depth: int) -> None:
        visited, frontier = set(names), set(names)
        for hops in range(1, depth + 1):
            ends: set[str] = set()
            for column in self._columns:
                ends |= await self._step(column, frontier, hops)
            if self.truncated:
                return
            frontier = await expand_names(self._unit, ends - visited) - visited if ends - visited else set[str]()
            if len(visited) + len(frontier) > MAX_NAMES:
                self.truncated = True
                return
            visited |= frontier
            if not frontier:
                return

    async def _step(self, column: str, names: set[str], hops: int) -> set[str]:
        """Add the triples that have one of the names in the column; return the names at their other end."""
        room = self._limit - len(self.found)
        values: Json = {**self._active.values, "names": sorted(names), "predicates": self._predicates}
        # Triples seen before may come again from their other end.
        values["most"] = room + len(self._seen) + 1
        rows = await self._unit.connection.execute(_query(self._active.sql, column, bool(self._predicates)), values)
        other, ends = ("object_key" if column == "subject_key" else "subject_key"), set[str]()
        for row in rows:
            if row.id in self._seen:
                continue
            if len(self.found) >= self._limit:
                self.truncated = True
                return ends
            self._seen.add(row.id)
            self.found.append({**triple_from_row(row), "hops": hops})
            ends.add(getattr(row, other))
        return ends


_QUERIES: Final[dict[tuple[str, str, bool], Select[Any]]] = {}


def _query(active: str, column: str, has_predicates: bool) -> Select[Any]:
    key = (active, column, has_predicates)
    if key not in _QUERIES:
        found = select(triples).where(statement(active), triples.c[column].in_(bindparam("names", expanding=True)))
        if has_predicates:
            found = found.where(triples.c.predicate_key.in_(bindparam("predicates", expanding=True)))
        _QUERIES[key] = found.order_by(triples.c.number).limit(bindparam("most", type_=Integer))
    return _QUERIES[key]
