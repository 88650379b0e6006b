"""Estimates the cost of checking arguments against a schema.

`SchemaSurvey` resolves all references and assigns a cost to every subschema. `max_charge_by_depth` derives from it the
highest cost of one value at each depth of the arguments. `remove_patterns` returns a schema without the given patterns.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast
from urllib.parse import unquote, urljoin

import jsonschema_rs as rs

from gateway.catalogue.schema.keywords import (
    CHILD_KEYWORDS,
    DIALECTS,
    IN_PLACE_KEYWORDS,
    MAP_KEYWORDS,
    MAX_JSON_DEPTH,
    NAMED_CHILD_KEYWORDS,
    REF_KEYWORDS,
    SUBSCHEMA_KEYWORDS,
    InvalidSchema,
    children,
    get_child,
    subschemas,
    truncate,
    validator_of,
)
from gateway.contract import Json

# One unit is about 20 ns of validation, so a check may take about 50 ms.
BUDGET: Final = 2_500_000


def keyword_cost(schema: Json) -> int:
    """Units for the keywords of one subschema. Measured: comparing numbers other than small integers is slowest."""
    units = 1 + 30 * sum(key in schema for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
    if isinstance(multiple := schema.get("multipleOf"), float):
        units += 150 if multiple > 1e-10 else 2_500
    if "const" in schema:
        units += _comparison_cost(schema["const"])
    # An enum of only strings or only integers is looked up by hash.
    options: list[Any] = schema["enum"] if isinstance(schema.get("enum"), list) else []
    if not all(type(option) is str for option in options) and not all(type(option) is int for option in options):
        units += _comparison_cost(options)
    return units


def _comparison_cost(value: Any) -> int:
    if isinstance(value, float):
        return 250
    return 15 + sum(_comparison_cost(below) for below in children(value))


@lru_cache(maxsize=4096)
def pattern_cost(pattern: str) -> int | None:
    """Worst-case units per character, from the size of the automaton. None if the pattern cannot be run."""
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
    """The cost of a subschema for a value, and the subschemas it applies to the value and its children."""

    units: int = 1
    per_character: int = 0
    """Units per character of a string."""
    repeats: int = 1
    """How often the validator evaluates the in-place subschemas."""
    in_place: "list[SubschemaState]" = field(default_factory=list["SubschemaState"])
    named: "dict[str | int, SubschemaState]" = field(default_factory=dict[str | int, "SubschemaState"])
    below: "list[SubschemaState]" = field(default_factory=list["SubschemaState"])


def _at_every_depth(units: int) -> SubschemaState:
    state = SubschemaState(units)
    state.below.append(state)
    return state


class SchemaSurvey:
    """All subschemas with their costs. References are resolved within the schema. Raises `InvalidSchema`."""

    def __init__(self, root: Json) -> None:
        self.patterns: set[str] = set()
        self.branching = False
        self._root = root
        self._subschemas: dict[int, tuple[Json, str]] = {}
        self._resources: dict[str, Json] = {"": root}
        self._anchors: dict[tuple[str, str], Json] = {}
        self._dynamic: defaultdict[str, list[Json]] = defaultdict(list)
        self._count = 0
        self._visit(root, "", 1)
        # Resolving a reference may add subschemas.
        self._refs = {subschema_id: self._targets(subschema_id) for subschema_id in self._pending_subschemas()}
        if len(self.patterns) > MAX_PATTERNS:
            raise InvalidSchema(f"the schema has over {MAX_PATTERNS} patterns")
        self._states = {subschema_id: SubschemaState() for subschema_id in self._subschemas}
        for subschema_id, (schema, _) in self._subschemas.items():
            self._fill(self._states[subschema_id], schema, self._refs[subschema_id])
        self.start = self._states[id(root)]

    def _pending_subschemas(self) -> Iterator[int]:
        done: set[int] = set()
        while rest := [subschema_id for subschema_id in self._subschemas if subschema_id not in done]:
            done.update(rest)
            yield from rest

    def _visit(self, schema: Json, base: str, depth: int) -> None:
        self._count += 1
        if self._count > MAX_SUBSCHEMAS:
            raise InvalidSchema(f"the schema has over {MAX_SUBSCHEMAS} subschemas")
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"the schema is nested over {MAX_DEPTH} subschemas deep")
        base = self._register(schema, base)
        self._subschemas[id(schema)] = (schema, base)
        self.branching = self.branching or "anyOf" in schema or "oneOf" in schema
        if isinstance(pattern := schema.get("pattern"), str):
            self.patterns.add(pattern)
        if isinstance(by_pattern := schema.get("patternProperties"), dict):
            self.patterns.update(cast("Json", by_pattern))
        for keyword in SUBSCHEMA_KEYWORDS:
            for _, sub in subschemas(schema, keyword):
                self._visit(sub, base, depth + 1)

    def _register(self, schema: Json, base: str) -> str:
        dialect = schema.get("$schema")
        if dialect is not None and validator_of(dialect) is None:
            raise InvalidSchema(f"the dialect {truncate(dialect)} is not one of draft-07, 2019-09, 2020-12")
        if isinstance(name := schema.get("$id"), str):
            if schema is not self._root and "$ref" in schema:
                raise InvalidSchema("$id next to $ref is ambiguous; remove one of them")
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

    def _targets(self, subschema_id: int) -> list[Json | None]:
        """The possible targets of a subschema's references. None stands for the metaschema of a dialect."""
        schema, base = self._subschemas[subschema_id]
        found: dict[int, Json | None] = {}
        for keyword in REF_KEYWORDS:
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
                target = get_child(target, part.replace("~1", "/").replace("~0", "~"))
        elif fragment:
            target = self._anchors.get((uri, fragment))
        if isinstance(target, bool):
            return {}
        if not isinstance(target, dict):
            raise InvalidSchema(f"$ref {truncate(ref)} has no target in the schema, and nothing is fetched")
        target = cast("Json", target)
        if id(target) not in self._subschemas:
            self._visit(target, uri, 1)
        return target

    def _fill(self, state: SubschemaState, schema: Json, targets: list[Json | None]) -> None:
        state.units = keyword_cost(schema)
        if isinstance(pattern := schema.get("pattern"), str):
            state.per_character = pattern_cost(pattern) or 0
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            state.repeats = 3
        for target in targets:
            state.in_place.append(
                _at_every_depth(32) if target is None else self._states.get(id(target)) or SubschemaState()
            )
        for keyword in IN_PLACE_KEYWORDS:
            state.in_place += [self._states[id(sub)] for _, sub in subschemas(schema, keyword)]
        for keyword in NAMED_CHILD_KEYWORDS:
            state.named |= {name: self._states[id(sub)] for name, sub in subschemas(schema, keyword)}
        for keyword in CHILD_KEYWORDS:
            state.below += [self._states[id(sub)] for _, sub in subschemas(schema, keyword)]
        if isinstance(by_pattern := schema.get("patternProperties"), dict):
            state.below += [
                SubschemaState(per_character=pattern_cost(pattern) or 0) for pattern in cast("Json", by_pattern)
            ]
        if schema.get("uniqueItems") is True:
            state.below.append(_at_every_depth(8))


def _join(base: str, ref: str) -> str:
    if ref.startswith("#"):
        return base + ref
    try:
        return urljoin(base, ref)
    except ValueError as exc:
        raise InvalidSchema(f"{truncate(ref)} is not a URI") from exc


_MAX_REF_CHAIN: Final = 64
_MAX_CLOSURE_SIZE: Final = 20_000
MAX_ROOT_UNITS: Final = 10_000


def max_charge_by_depth(survey: SchemaSurvey) -> tuple[list[int], list[int]]:
    """The highest charge of one value at each depth of the arguments: units, and units per character."""
    closures = _closures(survey.start)
    units = {state: sum(n * part.units for part, n in parts.items()) for state, parts in closures.items()}
    per_character = {
        state: sum(n * part.per_character for part, n in parts.items()) for state, parts in closures.items()
    }
    return _charge_by_depth(survey.start, closures, units), _charge_by_depth(survey.start, closures, per_character)


def _closures(start: SubschemaState) -> dict[SubschemaState, Counter[SubschemaState]]:
    """For every reachable state: all states that apply to the same value, and how often."""
    memo: dict[SubschemaState, Counter[SubschemaState]] = {}
    total_size = 0

    def close(state: SubschemaState, chain: int) -> Counter[SubschemaState]:
        nonlocal total_size
        if state in memo:
            return memo[state]
        if chain > _MAX_REF_CHAIN:
            raise InvalidSchema(f"a $ref refers to itself, or to a chain of more than {_MAX_REF_CHAIN} others")
        parts = Counter({state: 1})
        for part in state.in_place:
            for inner, times in close(part, chain + 1).items():
                parts[inner] += times * state.repeats
        total_size += len(parts)
        if total_size > _MAX_CLOSURE_SIZE:
            raise InvalidSchema("too many subschemas apply to one value")
        memo[state] = parts
        return parts

    reached: dict[SubschemaState, Counter[SubschemaState]] = {}
    pending = [start]
    while pending:
        state = pending.pop()
        if state not in reached:
            reached[state] = close(state, 1)
            pending += [below for part in reached[state] for below in (*part.below, *part.named.values())]
    return reached


def _charge_by_depth(
    start: SubschemaState, closures: dict[SubschemaState, Counter[SubschemaState]], charge: dict[SubschemaState, int]
) -> list[int]:
    levels = [charge[start]]
    while len(levels) < MAX_JSON_DEPTH and levels[-1] <= BUDGET:
        above, charge = charge, {state: _max_child_charge(parts, charge) for state, parts in closures.items()}
        levels.append(charge[start])
        # All deeper levels have the same charge.
        if charge == above:
            break
    return levels


def _max_child_charge(parts: Counter[SubschemaState], charge: dict[SubschemaState, int]) -> int:
    """The highest charge of a child: subschemas for all children plus those for one named child."""
    shared = 0
    named: defaultdict[str | int, int] = defaultdict(int)
    for part, times in parts.items():
        shared += times * sum(charge[below] for below in part.below)
        for name, below in part.named.items():
            named[name] += times * charge[below]
    return shared + max(named.values(), default=0)


# Without a pattern a subschema accepts more values. Under these keywords the schema would then reject more values.
_INVERTING_KEYWORDS: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems", "oneOf"}
)


def remove_patterns(schema: Any, unsupported: set[str]) -> Any:
    """The schema without these patterns. It accepts at least the values that the original accepts."""
    if isinstance(schema, list):
        return [remove_patterns(sub, unsupported) for sub in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    schema = cast("Json", schema)
    loose = {key: value for key, value in schema.items() if key not in _INVERTING_KEYWORDS}
    if loose.get("pattern") in unsupported:
        del loose["pattern"]
    if "oneOf" in schema:
        loose["allOf"] = [*loose.get("allOf", []), {"anyOf": schema["oneOf"]}]
    for keyword in SUBSCHEMA_KEYWORDS:
        value: Any = loose.get(keyword)
        if keyword in MAP_KEYWORDS and isinstance(value, dict):
            loose[keyword] = {name: remove_patterns(sub, unsupported) for name, sub in cast("Json", value).items()}
        elif isinstance(value, dict | list):
            loose[keyword] = remove_patterns(value, unsupported)
    if isinstance(by_pattern := loose.get("patternProperties"), dict):
        entries = cast("Json", by_pattern).items()
        kept = {pattern: sub for pattern, sub in entries if pattern not in unsupported}
        # The empty pattern matches every name, because the names allowed by a removed pattern are unknown.
        loose["patternProperties"] = kept if len(kept) == len(entries) else kept | {"": True}
    return loose
