"""Input schemas, checked and compiled once: a hostile one is refused here or made harmless, never fetched for.

A pattern that the linear-time engine cannot run (look-around, back-references), or only on text too long for it, is
left to the backend: the schema is then checked without it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, cast
from urllib.parse import unquote, urljoin

import jsonschema_rs as rs
import msgspec

from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_BYTES: Final = 64 * 1024
MAX_JSON_DEPTH: Final = 64
MAX_DEPTH: Final = 32
MAX_SUBSCHEMAS: Final = 2_000
MAX_PATTERNS: Final = 100
_MAX_CHAIN: Final = 64
_MAX_TANGLE: Final = 20_000
_MAX_ROOT: Final = 10_000

# One unit is about 20 ns of the validator's time, so a check may take some 50 ms.
_BUDGET: Final = 2_500_000
_LIGHT: Final = 8
"""Up to this many units for each value, even 1 MiB of arguments needs no weighing."""
_EXPLAINED: Final = 5_000
"""Listing every error costs a thousand times as much as finding that there is one."""

_DIALECTS: Final = {
    "http://json-schema.org/draft-07/schema": rs.Draft7Validator,
    "https://json-schema.org/draft-07/schema": rs.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": rs.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": rs.Draft202012Validator,
}

_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_NAMED: Final = ("properties", "prefixItems")
_BELOW: Final = (
    *("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "additionalItems", "unevaluatedItems", "contains"),
)
_ASIDE: Final = ("$defs", "definitions", "contentSchema")
_MAPS: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
_POSITIONS: Final = (*_IN_PLACE, *_NAMED, *_BELOW, *_ASIDE)
_REFS: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class BadSchema(ValueError):
    """A schema that is not compiled; the text says why, in words for whoever runs the backend."""


def compile_check(schema: Json, *, prefix: str = "input") -> Callable[[Json], None]:
    """What raises `Fault` for arguments that the schema refuses. Raises `BadSchema`."""
    return _checked(bound(schema), prefix)


@lru_cache(maxsize=1024)
def _checked(encoded: bytes, prefix: str) -> Callable[[Json], None]:
    """Kept by content: a backend that lists the same again costs nothing."""
    schema: Json = msgspec.json.decode(encoded)
    survey = _Survey(schema)
    refused = {pattern for pattern in survey.patterns if _price(pattern) is None}
    exact = _compiled(schema, refused)
    loose = _compiled(schema, survey.patterns) if survey.patterns - refused else exact
    units, letters = _levels(survey)
    if units[0] > _MAX_ROOT:
        raise BadSchema("too many subschemas apply to one value")
    return _Check(prefix, schema, exact, loose, units, letters, survey.branching)


def bound(value: object, *, limit: int = MAX_BYTES, what: str = "the schema") -> bytes:
    """The object encoded. Raises `BadSchema` for what is no object, or is too large or too deep to look at."""
    if not isinstance(value, dict):
        raise BadSchema(f"{what} is not an object")
    level: list[Any] = [value]
    seen = depth = 0
    while level:
        depth, seen = depth + 1, seen + len(level)
        if depth > MAX_JSON_DEPTH:
            raise BadSchema(f"{what} is nested over {MAX_JSON_DEPTH} deep")
        # Every value takes a byte at least; counted first, as one object may be held in many places.
        if seen > limit:
            raise BadSchema(f"{what} is over {limit} bytes")
        level = [below for held in level for below in _inside(held)]
    try:
        encoded = msgspec.json.encode(cast("Json", value))
    except (ValueError, TypeError, OverflowError) as exc:
        raise BadSchema(f"{what} is not JSON") from exc
    if len(encoded) > limit:
        raise BadSchema(f"{what} is over {limit} bytes")
    return encoded


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("Json", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _subschemas(schema: Json, keyword: str) -> Iterator[tuple[str | int, Json]]:
    """The object schemas a keyword holds, each with its name or index."""
    value = schema.get(keyword)
    if isinstance(value, list):
        entries = enumerate(cast("list[Any]", value))
    elif isinstance(value, dict):
        entries = cast("Json", value).items() if keyword in _MAPS else [("", cast("Any", value))]
    else:
        return
    for name, sub in entries:
        if isinstance(sub, dict):
            yield name, cast("Json", sub)


# ---- what the schema holds ----------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _State:
    """A subschema as a cost: what it charges a value, and what it sends to be checked where."""

    units: int = 1
    letters: int = 0
    """Charged for each character of a text."""
    again: int = 1
    """How often the validator comes back to what applies in place."""
    in_place: "list[_State]" = field(default_factory=list["_State"])
    named: "dict[str | int, _State]" = field(default_factory=dict[str | int, "_State"])
    below: "list[_State]" = field(default_factory=list["_State"])


def _everywhere(units: int) -> _State:
    state = _State(units)
    state.below.append(state)
    return state


class _Survey:
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
        self._states = {place: _State() for place in self._places}
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
        for keyword in _POSITIONS:
            for _, sub in _subschemas(schema, keyword):
                self._visit(sub, base, depth + 1)

    def _register(self, schema: Json, base: str) -> str:
        dialect = schema.get("$schema")
        if dialect is not None and _dialect(dialect) is None:
            raise BadSchema(f"the dialect {_clip(dialect)} is not one of draft-07, 2019-09, 2020-12")
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
        for keyword in _REFS:
            if not isinstance(ref := schema.get(keyword), str):
                continue
            uri, _, fragment = _join(base, ref).partition("#")
            candidates = [self._resolve(uri, unquote(fragment), ref)]
            if keyword != "$ref":
                candidates += self._dynamic[fragment]
            found |= {id(target): target for target in candidates}
        return list(found.values())

    def _resolve(self, uri: str, fragment: str, ref: str) -> Json | None:
        if uri not in self._resources and uri in _DIALECTS:
            return None
        target: Any = self._resources.get(uri)
        if fragment.startswith("/"):
            for part in fragment[1:].split("/"):
                target = _step(target, part.replace("~1", "/").replace("~0", "~"))
        elif fragment:
            target = self._anchors.get((uri, fragment))
        if isinstance(target, bool):
            return {}
        if not isinstance(target, dict):
            raise BadSchema(f"$ref {_clip(ref)} leads nowhere within the schema, and nothing is fetched")
        target = cast("Json", target)
        if id(target) not in self._places:
            self._visit(target, uri, 1)
        return target

    def _fill(self, state: _State, schema: Json, targets: list[Json | None]) -> None:
        state.units = _units(schema)
        if isinstance(pattern := schema.get("pattern"), str):
            state.letters = _price(pattern) or 0
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            state.again = 3
        for target in targets:
            state.in_place.append(_everywhere(32) if target is None else self._states.get(id(target)) or _State())
        for keyword in _IN_PLACE:
            state.in_place += [self._states[id(sub)] for _, sub in _subschemas(schema, keyword)]
        for keyword in _NAMED:
            state.named |= {name: self._states[id(sub)] for name, sub in _subschemas(schema, keyword)}
        for keyword in _BELOW:
            state.below += [self._states[id(sub)] for _, sub in _subschemas(schema, keyword)]
        if isinstance(by_pattern := schema.get("patternProperties"), dict):
            state.below += [_State(letters=_price(pattern) or 0) for pattern in cast("Json", by_pattern)]
        if schema.get("uniqueItems") is True:
            state.below.append(_everywhere(8))


def _step(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return cast("Json", value).get(part)
    if isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 6:
        items = cast("list[Any]", value)
        return items[int(part)] if int(part) < len(items) else None
    return None


def _join(base: str, ref: str) -> str:
    if ref.startswith("#"):
        return base + ref
    try:
        return urljoin(base, ref)
    except ValueError as exc:
        raise BadSchema(f"{_clip(ref)} is not a URI") from exc


def _dialect(name: object) -> type[rs.Validator] | None:
    return _DIALECTS.get(name.removesuffix("#")) if isinstance(name, str) else None


# ---- what checking may cost ---------------------------------------------------------------------------------------


def _units(schema: Json) -> int:
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
    return 15 + sum(_compared(below) for below in _inside(value))


@lru_cache(maxsize=4096)
def _price(pattern: str) -> int | None:
    """Units for each character in the worst case, by the size of the automaton; None when it cannot be run."""
    for limit, units in ((1 << 10, 1), (1 << 13, 100), (1 << 16, 800), (1 << 20, 3_000)):
        try:
            rs.Draft202012Validator({"pattern": pattern}, pattern_options=rs.RegexOptions(size_limit=limit))
        except ValueError:
            continue
        return units
    return None


def _levels(survey: _Survey) -> tuple[list[int], list[int]]:
    """The most that one value can be charged at each depth of the arguments: units, and units for each character."""
    closures = _closures(survey.start)
    units = {state: sum(n * part.units for part, n in parts.items()) for state, parts in closures.items()}
    letters = {state: sum(n * part.letters for part, n in parts.items()) for state, parts in closures.items()}
    return _descend(survey.start, closures, units), _descend(survey.start, closures, letters)


def _closures(start: _State) -> dict[_State, Counter[_State]]:
    """For every state a value can be sent to: all that apply to that same value, and how often."""
    memo: dict[_State, Counter[_State]] = {}
    tangle = 0

    def close(state: _State, chain: int) -> Counter[_State]:
        nonlocal tangle
        if state in memo:
            return memo[state]
        if chain > _MAX_CHAIN:
            raise BadSchema(f"a $ref leads back to itself, or through more than {_MAX_CHAIN} others")
        parts = Counter({state: 1})
        for part in state.in_place:
            for inner, times in close(part, chain + 1).items():
                parts[inner] += times * state.again
        tangle += len(parts)
        if tangle > _MAX_TANGLE:
            raise BadSchema("too many subschemas apply to one value")
        memo[state] = parts
        return parts

    reached: dict[_State, Counter[_State]] = {}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        if state not in reached:
            reached[state] = close(state, 1)
            waiting += [below for part in reached[state] for below in (*part.below, *part.named.values())]
    return reached


def _descend(start: _State, closures: dict[_State, Counter[_State]], charge: dict[_State, int]) -> list[int]:
    levels = [charge[start]]
    while len(levels) < MAX_JSON_DEPTH and levels[-1] <= _BUDGET:
        above, charge = charge, {state: _dearest(parts, charge) for state, parts in closures.items()}
        levels.append(charge[start])
        # Every level further down is the same.
        if charge == above:
            break
    return levels


def _dearest(parts: Counter[_State], charge: dict[_State, int]) -> int:
    """The charge for the dearest child: what applies to every child, and what applies to one by its name."""
    shared = 0
    named: defaultdict[str | int, int] = defaultdict(int)
    for part, times in parts.items():
        shared += times * sum(charge[below] for below in part.below)
        for name, below in part.named.items():
            named[name] += times * charge[below]
    return shared + max(named.values(), default=0)


# ---- the check ----------------------------------------------------------------------------------------------------


def _compiled(schema: Json, refused: set[str]) -> rs.Validator:
    kind = _dialect(schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")) or rs.Draft202012Validator
    try:
        return kind(
            _without(schema, refused) if refused else schema,
            validate_formats=False,
            pattern_options=rs.RegexOptions(size_limit=1 << 20),
            retriever=_refuse,
        )
    except (ValueError, rs.ReferencingError) as exc:
        raise BadSchema(_reason(exc)) from exc


def _refuse(uri: str) -> Json:
    raise ValueError(f"{uri} is not fetched")


def _reason(exc: Exception) -> str:
    if not isinstance(exc, rs.ValidationError):
        return _clip(str(exc), 200)
    where = ".".join(str(part) for part in exc.instance_path)
    return _clip(f"{where}: {exc.message}" if where else exc.message, 200)


# With a pattern gone a subschema accepts more than it should; these would then refuse more than they should.
_CONTRARY: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems", "oneOf"}
)


def _without(schema: Any, refused: set[str]) -> Any:
    """The schema without those patterns, accepting all that it accepted with them."""
    if isinstance(schema, list):
        return [_without(sub, refused) for sub in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    schema = cast("Json", schema)
    loose = {key: value for key, value in schema.items() if key not in _CONTRARY}
    if loose.get("pattern") in refused:
        del loose["pattern"]
    if "oneOf" in schema:
        loose["allOf"] = [*loose.get("allOf", []), {"anyOf": schema["oneOf"]}]
    for keyword in _POSITIONS:
        value: Any = loose.get(keyword)
        if keyword in _MAPS and isinstance(value, dict):
            loose[keyword] = {name: _without(sub, refused) for name, sub in cast("Json", value).items()}
        elif isinstance(value, dict | list):
            loose[keyword] = _without(value, refused)
    if isinstance(by_pattern := loose.get("patternProperties"), dict):
        entries = cast("Json", by_pattern).items()
        kept = {pattern: sub for pattern, sub in entries if pattern not in refused}
        # An empty pattern matches every name: which ones the lost pattern allowed is not known.
        loose["patternProperties"] = kept if len(kept) == len(entries) else kept | {"": True}
    return loose


class _Check:
    """The compiled schema: finds that arguments are bad in half a microsecond, and says why only then."""

    def __init__(
        self,
        prefix: str,
        schema: Json,
        exact: rs.Validator,
        loose: rs.Validator,
        units: list[int],
        letters: list[int],
        branching: bool,
    ) -> None:
        self._prefix = prefix
        self._schema = schema
        self._exact = exact
        self._loose = loose
        self._units = units
        self._letters = letters
        self._peak = max(units)
        self._dearest = max(*units, *letters)
        self._weighed = self._peak > _LIGHT or any(letters)
        self._branching = branching

    def __call__(self, arguments: Json) -> None:
        try:
            validator = self._affordable(arguments) if self._weighed else self._exact
            valid = validator.is_valid(arguments)
        except (ValueError, TypeError) as exc:
            raise _refusal(self._prefix, "type", "is not JSON") from exc
        if not valid:
            raise self._explained(validator, arguments)

    def _affordable(self, arguments: Json) -> rs.Validator:
        size = len(msgspec.json.encode(arguments))
        # As `_amount` would count at most: every byte a value, or all of them one number.
        if (6 * size + (size // 77) ** 2) * self._dearest <= _BUDGET:
            return self._exact
        work = scanned = 0
        for depth, level in enumerate(_levels_of(arguments)):
            units, letters = _at(self._units, depth), _at(self._letters, depth)
            if not units and not letters:
                break
            work += len(level) * units
            if work <= _BUDGET:
                extra, text = _amount(level)
                work += extra * units
                scanned += text * letters
            if work > _BUDGET:
                raise Fault(
                    Kind.TOO_LARGE,
                    f"{self._prefix}: too large or too deep to be checked against this tool's schema.",
                    details={"validation_path": self._prefix, "validation_rule": "complexity"},
                    suggested_fix="Send less at once.",
                )
        return self._loose if scanned > _BUDGET else self._exact

    def _explained(self, validator: rs.Validator, arguments: Json) -> Fault:
        if self._size(arguments) * self._peak <= _EXPLAINED:
            if (first := min(validator.iter_errors(arguments), key=_rank, default=None)) is not None:
                return _fault(first, self._prefix, self._schema)
        elif not self._branching:
            try:
                validator.validate(arguments)
            except rs.ValidationError as error:
                return _fault(error, self._prefix, self._schema)
        return _refusal(self._prefix, "schema", "does not fit the tool's input schema, and is too large to say where")

    def _size(self, arguments: Json) -> int:
        size = 0
        for level in _levels_of(arguments):
            size += len(level) + sum(len(value) for value in level if isinstance(value, str)) // 4096
            if size > _EXPLAINED:
                break
        return size


def _levels_of(arguments: Json) -> Iterator[list[Any]]:
    """The values at each depth. A key counts as a value beside the one it names: both may be checked."""
    level: list[Any] = [arguments]
    while level:
        yield level
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += cast("Json", value)
                below += cast("Json", value).values()
            elif isinstance(value, list):
                below += cast("list[Any]", value)
        level = below


def _amount(level: list[Any]) -> tuple[int, int]:
    """As how many values more the numbers of many digits count, and how many characters of text there are."""
    extra = letters = 0
    for value in level:
        if isinstance(value, str):
            letters += len(value)
        elif isinstance(value, int):
            extra += (value.bit_length() >> 8) ** 2
        elif isinstance(value, float) and not 1e-6 < abs(value) < 1e15:
            extra += 16
    return extra, letters


def _at(levels: list[int], depth: int) -> int:
    return levels[depth] if depth < len(levels) else levels[-1]


# ---- what is wrong, in words --------------------------------------------------------------------------------------

_SAID: Final = {
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "minProperties": "must have at least {limit} properties",
    "maxProperties": "must have at most {limit} properties",
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be over {limit}",
    "exclusiveMaximum": "must be under {limit}",
    "multipleOf": "must be a multiple of {multiple_of}",
    "pattern": "must match the pattern {pattern}",
    "uniqueItems": "must not hold the same item twice",
    "contains": "does not hold the items it must",
    "const": "must be {expected_value}",
    "not": "has a form that is excluded",
    "falseSchema": "is not allowed",
}


def _rank(error: rs.ValidationError) -> tuple[bool, int]:
    """The plainest error first: an either/or says least, and a shallow one explains the deeper ones."""
    return error.kind.name in ("anyOf", "oneOf", "not"), len(error.instance_path)


def _fault(error: rs.ValidationError, prefix: str, schema: Json) -> Fault:
    path = ".".join([prefix, *(_clip(part, 40) for part in error.instance_path)])
    rule = error.kind.name
    match error.kind:
        case rs.ValidationErrorKind.Required(property=name):
            return _refusal(f"{path}.{_clip(name, 40)}", rule, "is required", f"Add `{_clip(name, 40)}`.")
        case (
            rs.ValidationErrorKind.AdditionalProperties(unexpected=[name, *_])
            | rs.ValidationErrorKind.UnevaluatedProperties(unexpected=[name, *_])
        ):
            near = get_close_matches(name[:80], _known(schema, error.schema_path), n=1)
            hint = f"Did you mean `{_clip(near[0], 40)}`?" if near else f"Remove `{_clip(name, 40)}`."
            return _refusal(f"{path}.{_clip(name, 40)}", rule, "is not a known property", hint)
        case rs.ValidationErrorKind.Type(types=types):
            return _refusal(path, rule, f"must be {_either(types)}, not {_type(error.instance)}")
        case rs.ValidationErrorKind.Enum(options=options):
            near = get_close_matches(str(error.instance)[:80], [o for o in options if isinstance(o, str)], n=1)
            hint = f"Did you mean `{_clip(near[0], 40)}`?" if near else None
            return _refusal(path, rule, f"must be one of {_clip(_either(options))}", hint)
        case rs.ValidationErrorKind.PropertyNames(error=inner):
            name = _clip(inner.instance, 40)
            return _refusal(f"{path}.{name}", rule, f"has a name that {_said(inner.kind)}")
        case rs.ValidationErrorKind.AnyOf(context=branches) | rs.ValidationErrorKind.OneOfNotValid(context=branches):
            return _either_or(path, rule, branches, prefix, schema)
        case rs.ValidationErrorKind.OneOfMultipleValid():
            return _refusal(path, rule, "fits more than one of the forms that exclude each other")
        case _:
            return _refusal(path, rule, _said(error.kind))


def _either_or(path: str, rule: str, branches: list[list[rs.ValidationError]], prefix: str, schema: Json) -> Fault:
    missing = [[e.kind.property for e in b if isinstance(e.kind, rs.ValidationErrorKind.Required)] for b in branches]
    if branches and all(len(names) == len(errors) for names, errors in zip(missing, branches, strict=True)):
        names = _clip(" or ".join(" and ".join(names) for names in missing))
        return _refusal(path, rule, f"one of {names} is required", f"Add one of {names}.")
    # The branch whose tag fits is the one that was meant.
    meant = [b for b in branches if b and not any(e.kind.name in ("const", "enum", "type") for e in b)]
    if len(meant) == 1:
        return _fault(min(meant[0], key=_rank), prefix, schema)
    tags = [e for b in branches for e in b if e.kind.name == "const"]
    if tags and len(tags) == len(branches) and len({tuple(e.instance_path) for e in tags}) == 1:
        options = [cast("rs.ValidationErrorKind.Constant", e.kind).expected_value for e in tags]
        where = ".".join([prefix, *(_clip(part, 40) for part in tags[0].instance_path)])
        return _refusal(where, "enum", f"must be one of {_clip(_either(options))}")
    types = [e for b in branches for e in b[:1] if e.kind.name == "type" and len(b) == 1]
    if len(types) == len(branches) and len({tuple(e.instance_path) for e in types}) == 1:
        names = [name for e in types for name in cast("rs.ValidationErrorKind.Type", e.kind).types]
        where = ".".join([prefix, *(_clip(part, 40) for part in types[0].instance_path)])
        return _refusal(where, "type", f"must be {_either(names)}, not {_type(types[0].instance)}")
    return _refusal(path, rule, f"fits none of its {len(branches)} allowed forms")


def _refusal(path: str, rule: str, text: str, fix: str | None = None) -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        f"{path}: {text}.",
        details={"validation_path": path, "validation_rule": rule},
        suggested_fix=fix,
    )


def _said(kind: rs.ValidationErrorKind) -> str:
    words = {key: _clip(value) for key, value in kind.as_dict().items()}
    return _SAID.get(kind.name, "does not meet `" + kind.name + "`").format_map(defaultdict(str, words))


def _known(schema: Json, path: list[str | int]) -> list[str]:
    place: Any = schema
    for part in path[:-1]:
        place = _step(place, str(part))
    properties: Any = cast("Json", place).get("properties") if isinstance(place, dict) else None
    return list(cast("Json", properties)) if isinstance(properties, dict) else []


def _either(values: list[Any]) -> str:
    texts = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
    return f"{', '.join(texts[:-1])} or {texts[-1]}" if len(texts) > 1 else "".join(texts) or "nothing"


_TYPES: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "boolean"),
    (str, "string"),
    ((int, float), "number"),
    (dict, "object"),
    (list, "array"),
)


def _type(value: Any) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "null")


def _clip(value: object, limit: int = 80) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
