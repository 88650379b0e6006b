"""What one keyword costs the validator, in units.

What a schema holds: every subschema with its cost, and where its references lead.

The most that checking one value can cost, at each depth of the arguments.

A schema without some of its patterns.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast
from urllib.parse import unquote, urljoin

import jsonschema_rs as rs

from gateway.catalogue.schema.keywords import (
    BELOW,
    DIALECTS,
    IN_PLACE,
    MAPS,
    MAX_JSON_DEPTH,
    NAMED,
    POSITIONS,
    REFS,
    InvalidSchema,
    clip,
    inside,
    step,
    subschemas,
    validator_of,
)
from gateway.contract import Json

# One unit is about 20 ns of the validator's time, so a check may take some 50 ms.
BUDGET: Final = 2_500_000


def units_of(schema: Json) -> int:
    """Measured: comparing numbers that are not small integers is by far the slowest thing a schema can ask for."""
    units = 1 + 30 * sum(key in schema for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
    if isinstance(step := schema.get("multipleOf"), float):
        units += 150 if step > 1e-10 else 2_500
    if "const" in schema:
        units += _compared(schema["const"])
    # Texts alone, or integers alone, are looked up by hash.
    options: list[Any] = schema["enum"] if isinstance(schema.get("enum"), list) else []
    if not all(type(option) is str for option in options) and not all(type(option) is int for option in options):
        units += _compared(options)
    return units


def _compared(value: Any) -> int:
    if isinstance(value, float):
        return 250
    return 15 + sum(_compared(below) for below in inside(value))


@lru_cache(maxsize=4096)
def price_of(pattern: str) -> int | None:
    """Units for each character in the worst case, by the size of the automaton; None when it cannot be run."""
    for limit, units in ((1 << 10, 1), (1 << 13, 100), (1 << 16, 800), (1 << 20, 3_000)):
        try:
            rs.Draft202012Validator({"pattern": pattern}, pattern_options=rs.RegexOptions(size_limit=limit))
        except ValueError:
            continue
        return units
    return None


MAX_DEPTH: Final = 32

MAX_SUBSCHEMAS: Final = 2_000

MAX_PATTERNS: Final = 100


@dataclass(eq=False, slots=True)
class SubschemaState:
    """A subschema as a cost: what it charges a value, and what it sends to be checked where."""

    units: int = 1
    letters: int = 0
    """Charged for each character of a text."""
    again: int = 1
    """How often the validator comes back to what applies in place."""
    in_place: "list[SubschemaState]" = field(default_factory=list["SubschemaState"])
    named: "dict[str | int, SubschemaState]" = field(default_factory=dict[str | int, "SubschemaState"])
    below: "list[SubschemaState]" = field(default_factory=list["SubschemaState"])


def _everywhere(units: int) -> SubschemaState:
    state = SubschemaState(units)
    state.below.append(state)
    return state


class SchemaSurvey:
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
            raise InvalidSchema(f"the schema has over {MAX_PATTERNS} patterns")
        self._states = {place: SubschemaState() for place in self._places}
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
            raise InvalidSchema(f"the schema has over {MAX_SUBSCHEMAS} subschemas")
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"the schema is nested over {MAX_DEPTH} subschemas deep")
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
            raise InvalidSchema(f"the dialect {clip(dialect)} is not one of draft-07, 2019-09, 2020-12")
        if isinstance(name := schema.get("$id"), str):
            if schema is not self._root and "$ref" in schema:
                raise InvalidSchema("$id beside $ref means different things to different validators")
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
            raise InvalidSchema(f"$ref {clip(ref)} leads nowhere within the schema, and nothing is fetched")
        target = cast("Json", target)
        if id(target) not in self._places:
            self._visit(target, uri, 1)
        return target

    def _fill(self, state: SubschemaState, schema: Json, targets: list[Json | None]) -> None:
        state.units = units_of(schema)
        if isinstance(pattern := schema.get("pattern"), str):
            state.letters = price_of(pattern) or 0
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            state.again = 3
        for target in targets:
            state.in_place.append(
                _everywhere(32) if target is None else self._states.get(id(target)) or SubschemaState()
            )
        for keyword in IN_PLACE:
            state.in_place += [self._states[id(sub)] for _, sub in subschemas(schema, keyword)]
        for keyword in NAMED:
            state.named |= {name: self._states[id(sub)] for name, sub in subschemas(schema, keyword)}
        for keyword in BELOW:
            state.below += [self._states[id(sub)] for _, sub in subschemas(schema, keyword)]
        if isinstance(by_pattern := schema.get("patternProperties"), dict):
            state.below += [SubschemaState(letters=price_of(pattern) or 0) for pattern in cast("Json", by_pattern)]
        if schema.get("uniqueItems") is True:
            state.below.append(_everywhere(8))


def _join(base: str, ref: str) -> str:
    if ref.startswith("#"):
        return base + ref
    try:
        return urljoin(base, ref)
    except ValueError as exc:
        raise InvalidSchema(f"{clip(ref)} is not a URI") from exc


_MAX_CHAIN: Final = 64

_MAX_TANGLE: Final = 20_000

MAX_ROOT: Final = 10_000


def by_depth(survey: SchemaSurvey) -> tuple[list[int], list[int]]:
    """The most that one value can be charged at each depth of the arguments: units, and units for each character."""
    closures = _closures(survey.start)
    units = {state: sum(n * part.units for part, n in parts.items()) for state, parts in closures.items()}
    letters = {state: sum(n * part.letters for part, n in parts.items()) for state, parts in closures.items()}
    return _descend(survey.start, closures, units), _descend(survey.start, closures, letters)


def _closures(start: SubschemaState) -> dict[SubschemaState, Counter[SubschemaState]]:
    """For every state a value can be sent to: all that apply to that same value, and how often."""
    memo: dict[SubschemaState, Counter[SubschemaState]] = {}
    tangle = 0

    def close(state: SubschemaState, chain: int) -> Counter[SubschemaState]:
        nonlocal tangle
        if state in memo:
            return memo[state]
        if chain > _MAX_CHAIN:
            raise InvalidSchema(f"a $ref leads back to itself, or through more than {_MAX_CHAIN} others")
        parts = Counter({state: 1})
        for part in state.in_place:
            for inner, times in close(part, chain + 1).items():
                parts[inner] += times * state.again
        tangle += len(parts)
        if tangle > _MAX_TANGLE:
            raise InvalidSchema("too many subschemas apply to one value")
        memo[state] = parts
        return parts

    reached: dict[SubschemaState, Counter[SubschemaState]] = {}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        if state not in reached:
            reached[state] = close(state, 1)
            waiting += [below for part in reached[state] for below in (*part.below, *part.named.values())]
    return reached


def _descend(
    start: SubschemaState, closures: dict[SubschemaState, Counter[SubschemaState]], charge: dict[SubschemaState, int]
) -> list[int]:
    levels = [charge[start]]
    while len(levels) < MAX_JSON_DEPTH and levels[-1] <= BUDGET:
        above, charge = charge, {state: _dearest(parts, charge) for state, parts in closures.items()}
        levels.append(charge[start])
        # Every level further down is the same.
        if charge == above:
            break
    return levels


def _dearest(parts: Counter[SubschemaState], charge: dict[SubschemaState, int]) -> int:
    """The charge for the dearest child: what applies to every child, and what applies to one by its name."""
    shared = 0
    named: defaultdict[str | int, int] = defaultdict(int)
    for part, times in parts.items():
        shared += times * sum(charge[below] for below in part.below)
        for name, below in part.named.items():
            named[name] += times * charge[below]
    return shared + max(named.values(), default=0)


# With a pattern gone a subschema accepts more than it should; these would then refuse more than they should.
_CONTRARY: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems", "oneOf"}
)


def without(schema: Any, refused: set[str]) -> Any:
    """The schema without those patterns, accepting all that it accepted with them."""
    if isinstance(schema, list):
        return [without(sub, refused) for sub in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    schema = cast("Json", schema)
    loose = {key: value for key, value in schema.items() if key not in _CONTRARY}
    if loose.get("pattern") in refused:
        del loose["pattern"]
    if "oneOf" in schema:
        loose["allOf"] = [*loose.get("allOf", []), {"anyOf": schema["oneOf"]}]
    for keyword in POSITIONS:
        value: Any = loose.get(keyword)
        if keyword in MAPS and isinstance(value, dict):
            loose[keyword] = {name: without(sub, refused) for name, sub in cast("Json", value).items()}
        elif isinstance(value, dict | list):
            loose[keyword] = without(value, refused)
    if isinstance(by_pattern := loose.get("patternProperties"), dict):
        entries = cast("Json", by_pattern).items()
        kept = {pattern: sub for pattern, sub in entries if pattern not in refused}
        # An empty pattern matches every name: which ones the lost pattern allowed is not known.
        loose["patternProperties"] = kept if len(kept) == len(entries) else kept | {"": True}
    return loose
