"""Converts schemas of an OpenAPI document to JSON Schema 2020-12 within a size budget.

Referenced schemas go to `$defs`, nearest first, until the budget is used; the rest accept any value. This keeps cycles,
and bounds schemas that would grow without end. A response schema only describes: it is loosened, because clients
reject a result that violates it and APIs deviate from their documents in details.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from gateway.contract import Json
from gateway.upstream.openapi.document import MAX_REF_CHAIN, Document, DocumentError

Direction = Literal["request", "response"]

REQUEST_BUDGET: Final = 24 * 1024
RESPONSE_BUDGET: Final = 6 * 1024
_MAX_NODES: Final = 4_000
_DEPTHS: Final = (20, 6, 4, 3, 2)
"""Maximum inline nesting: each attempt that exceeds the budget is followed by a flatter one."""
_DESCRIPTION: Final[Mapping[Direction, int]] = {"request": 300, "response": 120}
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")

_PLAIN: Final = ("format", "default", "contentEncoding")
_BOUNDS: Final = (
    *("enum", "const", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)

_encode: Final = msgspec.json.Encoder().encode

UPLOAD: Final[Json] = {
    "type": "object",
    "description": "A file: `blob` in base64 or `text`.",
    "properties": {
        "blob": {"type": "string", "contentEncoding": "base64"},
        "text": {"type": "string"},
        "mimeType": {"type": "string"},
        "name": {"type": "string", "description": "File name."},
    },
    "oneOf": [{"required": ["blob"]}, {"required": ["text"]}],
    "additionalProperties": False,
}
"""Input schema of a file, after the resource contents of MCP."""


class SchemaConverter:
    """Converts the schemas of one tool in one direction. `finish` returns the `$defs` they refer to."""

    def __init__(self, document: Document, direction: Direction, budget: int, max_depth: int) -> None:
        self._document = document
        self._is_request = direction == "request"
        self._budget = budget
        self._max_depth = max_depth
        self._max_description = _DESCRIPTION[direction]
        self._nodes = 0
        self._names: dict[str, str] = {}
        """Name in `$defs` by reference."""
        self._taken: set[str] = set()

    def convert(self, schema: Any, depth: int = 0) -> Json:
        """Convert a schema. Values that are not a schema accept anything."""
        self._nodes += 1
        if not isinstance(schema, dict) or depth > self._max_depth or self._nodes > _MAX_NODES:
            return _stub(schema)
        schema = cast("Json", schema)
        if isinstance(ref := schema.get("$ref"), str):
            return self._described({"$ref": f"#/$defs/{self._name_of(ref)}"}, schema)
        converted: Json = {}
        self._add_type(converted, schema)
        self._described(converted, schema)
        if self._is_request:
            self._add_bounds(converted, schema)
        self._add_properties(converted, schema, depth)
        self._add_items(converted, schema, depth)
        self._add_combinations(converted, schema, depth)
        return converted

    def finish(self, used: int) -> Json:
        """The referenced schemas, nearest first. Those beyond the budget, of which `used` is spent, accept anything."""
        definitions: Json = {}
        pending = list(self._names)
        for ref in pending:
            name = self._names[ref]
            target = self._document.lookup(ref)
            if used < self._budget:
                known = len(self._names)
                converted = self.convert(target)
                used += len(_encode(converted)) + len(name)
                if used <= self._budget:
                    definitions[name] = converted
                    pending += list(self._names)[known:]
                    continue
                self._forget(known)
            definitions[name] = _stub(target)
        return definitions

    def _forget(self, known: int) -> None:
        """Forget the references of a schema that is left out."""
        for ref in list(self._names)[known:]:
            self._taken.discard(self._names.pop(ref))

    def _name_of(self, ref: str) -> str:
        if ref not in self._names:
            self._document.lookup(ref)  # raises for a reference without a target
            base = _UNSAFE.sub("_", ref.rpartition("/")[2])[:64] or "schema"
            name, number = base, 2
            while name in self._taken:
                name, number = f"{base}_{number}", number + 1
            self._taken.add(name)
            self._names[ref] = name
        return self._names[ref]

    def _described(self, converted: Json, schema: Json) -> Json:
        text = schema.get("description")
        if isinstance(text, str) and text.strip():
            converted["description"] = shorten(text, self._max_description)
        return converted

    def _add_type(self, converted: Json, schema: Json) -> None:
        given: Any = schema.get("type")
        types = [each for each in (cast("list[Any]", given) if isinstance(given, list) else [given]) if each in _TYPES]
        if not types:
            return
        # A response may contain null wherever the document forgot to say so.
        if (schema.get("nullable") is True or not self._is_request) and "null" not in types:
            types.append("null")
        converted["type"] = types[0] if len(types) == 1 else types

    def _add_bounds(self, converted: Json, schema: Json) -> None:
        converted |= {key: schema[key] for key in (*_PLAIN, *_BOUNDS) if key in schema and _is_small(schema[key])}
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(flag := converted.get(exclusive), bool):  # OpenAPI 3.0
                del converted[exclusive]
                if flag and bound in converted:
                    converted[exclusive] = converted.pop(bound)
        options: Any = converted.get("enum")
        if schema.get("nullable") is True and isinstance(options, list) and None not in options:
            converted["enum"] = [*cast("list[Any]", options), None]

    def _add_properties(self, converted: Json, schema: Json, depth: int) -> None:
        hidden: set[str] = set()
        if isinstance(properties := schema.get("properties"), dict):
            members = cast("Json", properties)
            hidden = {name for name, sub in members.items() if self._is_hidden(sub)}
            converted["properties"] = {
                name: self.convert(sub, depth + 1) for name, sub in members.items() if name not in hidden
            }
        required: Any = schema.get("required")
        if self._is_request and isinstance(required, list):
            names = [each for each in cast("list[Any]", required) if isinstance(each, str) and each not in hidden]
            if names:
                converted["required"] = list(dict.fromkeys(names))
        more: Any = schema.get("additionalProperties")
        if isinstance(more, dict):
            converted["additionalProperties"] = self.convert(more, depth + 1)
        elif more is False and self._is_request:
            converted["additionalProperties"] = False

    def _is_hidden(self, schema: Any) -> bool:
        """Whether a property belongs to the other direction only."""
        key = "readOnly" if self._is_request else "writeOnly"
        if not isinstance(schema, dict):
            return False
        schema = cast("Json", schema)
        if schema.get(key) is True:
            return True
        if not isinstance(ref := schema.get("$ref"), str):
            return False
        target = self._document.lookup(ref)
        return isinstance(target, dict) and cast("Json", target).get(key) is True

    def _add_items(self, converted: Json, schema: Json, depth: int) -> None:
        if isinstance(items := schema.get("items"), dict):
            converted["items"] = self.convert(items, depth + 1)
        if isinstance(prefix := schema.get("prefixItems"), list):
            converted["prefixItems"] = [self.convert(sub, depth + 1) for sub in cast("list[Any]", prefix)[:32]]

    def _add_combinations(self, converted: Json, schema: Json, depth: int) -> None:
        for keyword in ("allOf", "anyOf", "oneOf"):
            if isinstance(subs := schema.get(keyword), list) and subs:
                kept = keyword if self._is_request or keyword == "allOf" else "anyOf"
                parts = [self.convert(sub, depth + 1) for sub in cast("list[Any]", subs)[:64]]
                converted[kept] = [*converted.get(kept, []), *parts]
        if self._is_request and isinstance(negated := schema.get("not"), dict):
            converted["not"] = self.convert(negated, depth + 1)


def convert_bounded(document: Document, direction: Direction, parts: Mapping[str, Any]) -> tuple[dict[str, Json], Json]:
    """Convert several schemas that share `$defs`, within the budget of the direction.

    Returns the schemas by key, and `$defs`. Raises `DocumentError` for a reference without a target.
    """
    budget = REQUEST_BUDGET if direction == "request" else RESPONSE_BUDGET
    converted: dict[str, Json] = {}
    definitions: Json = {}
    for depth in _DEPTHS:
        converter = SchemaConverter(document, direction, budget, depth)
        converted = {key: converter.convert(schema) for key, schema in parts.items()}
        used = len(_encode(converted))
        if used <= budget or depth == _DEPTHS[-1]:
            definitions = converter.finish(used)
            break
    if len(_encode(converted)) > 2 * budget:
        raise DocumentError("its schema is too large")
    _check_cycles(definitions)
    return converted, definitions


def _check_cycles(definitions: Json) -> None:
    """Raise `DocumentError` if a schema applies itself to the same value: checking a value would never end."""
    done: set[str] = set()

    def visit(name: str, above: frozenset[str]) -> None:
        if name in above or len(above) > MAX_REF_CHAIN:
            raise DocumentError(f"the schema {name[:60]!r} refers to itself without an object or array between")
        if name not in done:
            for target in _applied_refs(definitions[name]):
                visit(target, above | {name})
            done.add(name)

    for name in definitions:
        visit(name, frozenset())


def _applied_refs(schema: Any) -> Iterator[str]:
    """The names in `$defs` of the schemas that apply to the same value as this schema."""
    schema = cast("Json", schema)
    if isinstance(ref := schema.get("$ref"), str):
        yield ref.removeprefix("#/$defs/")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for sub in schema.get(keyword, []):
            yield from _applied_refs(sub)
    if "not" in schema:
        yield from _applied_refs(schema["not"])


def _is_small(value: Any) -> bool:
    """Whether a value is copied: aliases of YAML can make a short document an immense value."""
    level, seen = [value], 0
    while level and seen <= _MAX_NODES:
        seen += len(level)
        level = [below for item in level for below in _children(item)] if seen <= _MAX_NODES else []
    return seen <= _MAX_NODES


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("Json", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _stub(schema: Any) -> Json:
    """A schema that accepts any value of the type, if that is known."""
    kind = cast("Json", schema).get("type") if isinstance(schema, dict) else None
    return {"type": [kind, "null"]} if kind in ("object", "array") else {}


def shorten(text: str, limit: int) -> str:
    """The text on one line per paragraph, cut at a word if it is over the limit."""
    text = re.sub(r"[ \t]+", " ", text.strip())
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[limit // 2 :] else cut}…"
