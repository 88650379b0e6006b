"""Flattens input schemas for model APIs that reject oneOf, anyOf, allOf, if, not or dependentSchemas at the root.

The flattened schema accepts everything that the exact one accepts. Its description states the rules that it lost.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import unquote

from gateway.contract import Json

REMOVED: Final = frozenset({"oneOf", "anyOf", "allOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
MAX_NESTING: Final = 16
_MAX_RULES_LENGTH: Final = 600


def flatten(schema: Json) -> Json:
    """Return a schema without combinators at the root, or `schema` itself if it has none. Does not modify `schema`."""
    if not REMOVED & schema.keys() or not is_portable(schema):
        return schema
    form = _collect_form(schema, schema, 0)
    flat = {key: value for key, value in schema.items() if key not in REMOVED and key != "unevaluatedProperties"}
    flat |= {"type": "object", "properties": form.properties}
    if form.required:
        flat["required"] = form.required
    if form.closed:
        flat.setdefault("additionalProperties", False)
    text = " ".join(describe_rules(schema))
    if text:
        description = text if len(text) <= _MAX_RULES_LENGTH else text[: _MAX_RULES_LENGTH - 1] + "…"
        flat["description"] = f"{schema.get('description', '')}\n\n{description}".strip()
    return flat


@dataclass(frozen=True, slots=True)
class _Form:
    """The rules of a schema for the properties of an object."""

    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    required: list[str] = field(default_factory=list[str])
    closed: bool = False
    named_only: bool = True
    """Whether all its property rules apply to named properties."""


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_dict(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def values_of(definition: Any) -> list[Any] | None:
    if not isinstance(definition, dict):
        return None
    definition = cast("Json", definition)
    if "const" in definition:
        return [definition["const"]]
    return as_list(definition["enum"]) if isinstance(definition.get("enum"), list) else None


def accepts_objects(branch: Any) -> bool:
    kinds = cast("Json", branch).get("type", "object") if isinstance(branch, dict) else "object"
    return branch is not False and (kinds == "object" or (isinstance(kinds, list) and "object" in kinds))


def resolve_pointer(ref: str, root: Json) -> Json | None:
    """The target of a local JSON pointer; None for any other reference."""
    target: Any = root
    if ref != "#":
        if not ref.startswith("#/"):
            return None
        for part in unquote(ref[2:]).split("/"):
            target = as_dict(target).get(part.replace("~1", "/").replace("~0", "~"))
    return cast("Json", target) if isinstance(target, dict) else None


def resolve(schema: Any, root: Json) -> Json:
    for _ in range(MAX_NESTING):
        ref: Any = as_dict(schema).get("$ref")
        if not isinstance(ref, str) or len(as_dict(schema)) > 1:
            break
        schema = resolve_pointer(ref, root)
    return as_dict(schema)


def is_portable(schema: Json) -> bool:
    """Whether no reference points into the keywords that flattening removes, and they define no ids or anchors."""
    for node in _iter_objects(schema.items()):
        ref = node.get("$ref")
        if isinstance(ref, str) and ref[2:].split("/")[0] in REMOVED:
            return False
    removed = [(key, value) for key, value in schema.items() if key in REMOVED]
    return not any({"$id", "$anchor", "$dynamicAnchor"} & node.keys() for node in _iter_objects(removed))


def _iter_objects(entries: Iterable[tuple[str, Any]]) -> Iterator[Json]:
    pending: list[Any] = [value for _, value in entries]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield cast("Json", value)
            pending += cast("Json", value).values()
        elif isinstance(value, list):
            pending += cast("list[Any]", value)


_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples"})
_MERGED: Final = _ANNOTATIONS | {"type", "const", "enum"}


def intersect(one: Any, other: Any) -> Any:
    """A definition of the values that both definitions accept."""
    if one == other or _accepts_anything(other):
        return one
    if _accepts_anything(one):
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = cast("Json", one), cast("Json", other)
        shared = one.keys() & other.keys() - _ANNOTATIONS
        plain = other.keys() <= _MERGED or one.keys() <= _MERGED
        if plain and all(_is_equal(one[key], other[key]) for key in shared):
            return other | one
        values, others = values_of(one), values_of(other)
        if values is not None and others is not None and one.keys() | other.keys() <= _MERGED:
            kept = [value for value in values if any(value == rest for rest in others)]
            dropped = {"const", *({"type"} & shared)}
            return {key: value for key, value in (other | one).items() if key not in dropped} | {"enum": kept}
    return {"allOf": [cast("Any", one), other]}


def unite(definitions: list[Any]) -> Any:
    """A definition of the values that any of the definitions accepts."""
    spread = [part for definition in definitions for part in _alternatives(definition)]
    kinds: list[Any] = []
    for definition in spread:
        if definition is not False and not any(
            _is_equal(_without_annotations(definition), _without_annotations(kind)) for kind in kinds
        ):
            kinds.append(definition)
    if len(kinds) < 2:
        return kinds[0] if kinds else False
    listed = [values_of(kind) for kind in kinds]
    if any(values is None for values in listed):
        return {"anyOf": kinds}
    enum: list[Any] = []
    for value in (value for values in listed for value in values or ()):
        if not any(_is_equal(value, known) for known in enum):
            enum.append(value)
    merged = {key: kind[key] for kind in reversed(kinds) for key in ("title", "description") if key in kind}
    types = [kind.get("type") for kind in kinds]
    if types[0] is not None and all(kind == types[0] for kind in types):
        merged["type"] = types[0]
    return merged | {"enum": enum}


def _alternatives(definition: Any) -> list[Any]:
    if isinstance(definition, dict) and definition.keys() == {"anyOf"}:
        return as_list(cast("Json", definition)["anyOf"])
    return [{} if definition is True else definition]


def _accepts_anything(definition: Any) -> bool:
    return any(isinstance(part, dict) and not _without_annotations(part) for part in _alternatives(definition))


def _without_annotations(definition: Any) -> Any:
    if not isinstance(definition, dict):
        return definition
    return {key: value for key, value in cast("Json", definition).items() if key not in _ANNOTATIONS}


def _is_equal(one: Any, other: Any) -> bool:
    """Equality as JSON. In Python True == 1, also inside lists and dicts."""
    return one == other and repr(one) == repr(other)


def describe_rules(root: Json) -> Iterator[str]:
    parts = [root, *(part for part in (resolve(part, root) for part in as_list(root.get("allOf"))))]
    for schema in parts:
        if options := _describe_options(schema.get("oneOf"), root):
            yield f"Exactly one of: {options}."
        if options := _describe_options(schema.get("anyOf"), root):
            yield f"At least one of: {options}."
        if "if" in schema:
            when = _describe(schema["if"], root) or "a condition holds"
            then, other = _describe(schema.get("then"), root), _describe(schema.get("else"), root)
            yield f"If {when}: {then or 'no more'}{f'; else: {other}' if other else ''}."
        for keyword in ("dependentSchemas", "dependencies"):
            for name, dependent in as_dict(schema.get(keyword)).items():
                required = " and ".join(map(str, cast("list[Any]", dependent))) if isinstance(dependent, list) else ""
                yield f"With {name}: {required or _describe(dependent, root) or 'more rules apply'}."
        if "not" in schema:
            yield f"Not allowed: {_describe(schema['not'], root) or 'some combinations'}."


def _describe_options(branches: Any, root: Json) -> str:
    descriptions = [_describe(branch, root) for branch in as_list(branches) if accepts_objects(branch)]
    return " | ".join(dict.fromkeys(text for text in descriptions if text))


def _describe(schema: Any, root: Json) -> str:
    """Describe one form by its tags and required properties: `action=move, from and to`."""
    schema = resolve(schema, root)
    tags = {name: values_of(definition) for name, definition in as_dict(schema.get("properties")).items()}
    tags_text = [f"{name}={'/'.join(map(str, values[:5]))}" for name, values in tags.items() if values]
    required = [str(name) for name in as_list(schema.get("required")) if not tags.get(str(name))]
    description = ", ".join([*tags_text, " and ".join(required)] if required else tags_text)
    return description or str(schema.get("title", ""))[:60]


def _collect_form(schema: Any, root: Json, nesting: int) -> _Form:
    if not isinstance(schema, dict):
        return _Form()
    if nesting > MAX_NESTING:
        return _Form(named_only=False)
    schema = cast("Json", schema)
    form = _direct_form(schema)
    if isinstance(ref := schema.get("$ref"), str):
        target = resolve_pointer(ref, root)
        form = _intersect_forms(
            form, _Form(named_only=False) if target is None else _collect_form(target, root, nesting + 1)
        )
    for part in as_list(schema.get("allOf")):
        form = _intersect_forms(form, _collect_form(part, root, nesting + 1))
    for group in _alternative_groups(schema):
        form = _intersect_forms(form, _unite_forms([_collect_form(part, root, nesting + 1) for part in group]))
    if schema.get("unevaluatedProperties") is False and form.named_only:
        return _Form(form.properties, form.required, closed=True)
    return form


def _direct_form(schema: Json) -> _Form:
    rest = schema.get("additionalProperties")
    patterns = bool(schema.get("patternProperties"))
    return _Form(
        dict(as_dict(schema.get("properties"))),
        [name for name in as_list(schema.get("required")) if isinstance(name, str)],
        closed=rest is False and not patterns,
        named_only=rest in (None, False) and not patterns and schema.get("unevaluatedProperties") in (None, False),
    )


def _alternative_groups(schema: Json) -> Iterator[list[Any]]:
    """The groups of alternatives in a schema. `{}` stands for a condition that is not met."""
    for keyword in ("anyOf", "oneOf"):
        if branches := [branch for branch in as_list(schema.get(keyword)) if accepts_objects(branch)]:
            yield branches
    if "if" in schema:
        yield [{"allOf": [schema["if"], schema.get("then", {})]}, schema.get("else", {})]
    for keyword in ("dependentSchemas", "dependencies"):
        for dependent in as_dict(schema.get(keyword)).values():
            yield [dependent, {}]


def _intersect_forms(one: _Form, other: _Form) -> _Form:
    properties = dict(one.properties)
    for name, definition in other.properties.items():
        properties[name] = intersect(properties[name], definition) if name in properties else definition
    return _Form(
        properties,
        list(dict.fromkeys([*one.required, *other.required])),
        one.closed or other.closed,
        one.named_only and other.named_only,
    )


def _unite_forms(forms: list[_Form]) -> _Form:
    properties: dict[str, Any] = {}
    for name in dict.fromkeys(name for form in forms for name in form.properties):
        definitions = [form.properties[name] for form in forms if name in form.properties]
        # An open form without a rule for this property accepts any value.
        anything = any(name not in form.properties and not form.closed for form in forms)
        properties[name] = unite([*definitions, {}] if anything else definitions)
    return _Form(
        properties,
        [name for name in forms[0].required if all(name in form.required for form in forms)],
        all(form.closed for form in forms),
        all(form.named_only for form in forms),
    )
