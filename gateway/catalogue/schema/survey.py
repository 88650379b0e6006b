"""What a schema holds: every subschema with its cost, and where its references lead."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import unquote, urljoin

from gateway.catalogue.schema.bounds import BadSchema, clip
from gateway.catalogue.schema.keywords import (
    BELOW,
    DIALECTS,
    IN_PLACE,
    NAMED,
    POSITIONS,
    REFS,
    step,
    subschemas,
    validator_of,
)
from gateway.catalogue.schema.price import price_of, units_of
from gateway.contract import Json

MAX_DEPTH: Final = 32
MAX_SUBSCHEMAS: Final = 2_000
MAX_PATTERNS: Final = 100


@dataclass(eq=False, slots=True)
class State:
    """A subschema as a cost: what it charges a value, and what it sends to be checked where."""

    units: int = 1
    letters: int = 0
    """Charged for each character of a text."""
    again: int = 1
    """How often the validator comes back to what applies in place."""
    in_place: "list[State]" = field(default_factory=list["State"])
    named: "dict[str | int, State]" = field(default_factory=dict[str | int, "State"])
    below: "list[State]" = field(default_factory=list["State"])


def _everywhere(units: int) -> State:
    state = State(units)
    state.below.append(state)
    return state


class Survey:
    """Every subschema, with the cost of each and its references resolved within the schema."""

    def __init__(self, root: Json) -> None:
        self.patterns: set[str] = set()
        self.branching = False
        self._root = root
        self._places: dict[int, tuple[Json, str]] = {}
        self._resources: dict[str, Json] = {"": root}
        self._anchors: dict[tuple[str, str], Json] = {}
        self._dynamic: defaultdict[str, list[Json]] = defaultdict(list)
        self._count = 0
        self._visit(root, "", 1)
        # Following a reference may visit more, and so add to the places.
        self._refs = {place: self._targets(place) for place in self._following()}
        if len(self.patterns) > MAX_PATTERNS:
            raise BadSchema(f"the schema has over {MAX_PATTERNS} patterns")
        self._states = {place: State() for place in self._places}
        for place, (schema, _) in self._places.items():
            self._fill(self._states[place], schema, self._refs[place])
        self.start = self._states[id(root)]

    def _following(self) -> Iterator[int]:
        done: set[int] = set()
        while rest := [place for place in self._places if place not in done]:
            done.update(rest)
            yield from rest

    def _visit(self, schema: Json, base: str, depth: int) -> None:
        self._count += 1
        if self._count > MAX_SUBSCHEMAS:
            raise BadSchema(f"the schema has over {MAX_SUBSCHEMAS} subschemas")
        if depth > MAX_DEPTH:
            raise BadSchema(f"the schema is nested over {MAX_DEPTH} subschemas deep")
        base = self._register(schema, base)
        self._places[id(schema)] = (schema, base)
        self.branching = self.branching or "anyOf" in schema or "oneOf" in schema
        if isinstance(pattern := schema.get("pattern"), str):
            self.patterns.add(pattern)
        if isinstance(by_pattern := schema.get("patternProperties"), dict):
            self.patterns.update(cast("Json", by_pattern))
        for keyword in POSITIONS:
            for _, sub in subschemas(schema, keyword):
                self._visit(sub, base, depth + 1)

    def _register(self, schema: Json, base: str) -> str:
        dialect = schema.get("$schema")
        if dialect is not None and validator_of(dialect) is None:
            raise BadSchema(f"the dialect {clip(dialect)} is not one of draft-07, 2019-09, 2020-12")
        if isinstance(name := schema.get("$id"), str):
            if schema is not self._root and "$ref" in schema:
                raise BadSchema("$id beside $ref means different things to different validators")
            if name.startswith("#"):
                self._anchors[base, name[1:]] = schema
            else:
                base = _join(base, name).partition("#")[0]
                self._resources[base] = schema
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(keyword), str):
                self._anchors[base, anchor] = schema
        if isinstance(anchor := schema.get("$dynamicAnchor"), str):
            self._dynamic[anchor].append(schema)
        if schema.get("$recursiveAnchor") is True:
            self._dynamic[""].append(schema)
        return base

    def _targets(self, place: int) -> list[Json | None]:
        """What the references of one subschema may lead to; None is a dialect's own schema."""
        schema, base = self._places[place]
        found: dict[int, Json | None] = {}
        for keyword in REFS:
            if not isinstance(ref := schema.get(keyword), str):
                continue
            uri, _, fragment = _join(base, ref).partition("#")
            candidates = [self._resolve(uri, unquote(fragment), ref)]
            if keyword != "$ref":
                candidates += self._dynamic[fragment]
            found |= {id(target): target for target in candidates}
        return list(found.values())

    def _resolve(self, uri: str, fragment: str, ref: str) -> Json | None:
        if uri not in self._resources and uri in DIALECTS:
            return None
        target: Any = self._resources.get(uri)
        if fragment.startswith("/"):
            for part in fragment[1:].split("/"):
                target = step(target, part.replace("~1", "/").replace("~0", "~"))
        elif fragment:
            target = self._anchors.get((uri, fragment))
        if isinstance(target, bool):
            return {}
        if not isinstance(target, dict):
            raise BadSchema(f"$ref {clip(ref)} leads nowhere within the schema, and nothing is fetched")
        target = cast("Json", target)
        if id(target) not in self._places:
            self._visit(target, uri, 1)
        return target

    def _fill(self, state: State, schema: Json, targets: list[Json | None]) -> None:
        state.units = units_of(schema)
        if isinstance(pattern := schema.get("pattern"), str):
            state.letters = price_of(pattern) or 0
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            state.again = 3
        for target in targets:
            state.in_place.append(_everywhere(32) if target is None else self._states.get(id(target)) or State())
        for keyword in IN_PLACE:
            state.in_place += [self._states[id(sub)] for _, sub in subschemas(schema, keyword)]
        for keyword in NAMED:
            state.named |= {name: self._states[id(sub)] for name, sub in subschemas(schema, keyword)}
        for keyword in BELOW:
            state.below += [self._states[id(sub)] for _, sub in subschemas(schema, keyword)]
        if isinstance(by_pattern := schema.get("patternProperties"), dict):
            state.below += [State(letters=price_of(pattern) or 0) for pattern in cast("Json", by_pattern)]
        if schema.get("uniqueItems") is True:
            state.below.append(_everywhere(8))


def _join(base: str, ref: str) -> str:
    if ref.startswith("#"):
        return base + ref
    try:
        return urljoin(base, ref)
    except ValueError as exc:
        raise BadSchema(f"{clip(ref)} is not a URI") from exc
