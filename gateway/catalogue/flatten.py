"""Input schemas as model APIs take them: no oneOf, anyOf, allOf, if, not or dependentSchemas at the root.

The flattened schema accepts all that the exact one accepts; what it can no longer refuse, it says in words.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import unquote

from gateway.contract import Json

REMOVED: Final = frozenset({"oneOf", "anyOf", "allOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})

MAX_NESTING: Final = 16


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


def takes_objects(branch: Any) -> bool:
    kinds = cast("Json", branch).get("type", "object") if isinstance(branch, dict) else "object"
    return branch is not False and (kinds == "object" or (isinstance(kinds, list) and "object" in kinds))


def target_of(ref: str, root: Json) -> Json | None:
    """Where a local pointer leads; None when it is of another kind."""
    place: Any = root
    if ref != "#":
        if not ref.startswith("#/"):
            return None
        for part in unquote(ref[2:]).split("/"):
            place = as_dict(place).get(part.replace("~1", "/").replace("~0", "~"))
    return cast("Json", place) if isinstance(place, dict) else None


def resolved(schema: Any, root: Json) -> Json:
    for _ in range(MAX_NESTING):
        ref: Any = as_dict(schema).get("$ref")
        if not isinstance(ref, str) or len(as_dict(schema)) > 1:
            break
        schema = target_of(ref, root)
    return as_dict(schema)


def portable(schema: Json) -> bool:
    """Whether nothing refers to, or depends on, the place of what flattening would remove."""
    for place in _everything(schema.items()):
        ref = place.get("$ref")
        if isinstance(ref, str) and ref[2:].split("/")[0] in REMOVED:
            return False
    gone = [(key, value) for key, value in schema.items() if key in REMOVED]
    return not any({"$id", "$anchor", "$dynamicAnchor"} & place.keys() for place in _everything(gone))


def _everything(entries: Iterable[tuple[str, Any]]) -> Iterator[Json]:
    waiting: list[Any] = [value for _, value in entries]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield cast("Json", value)
            waiting += cast("Json", value).values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)


_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples"})

_MERGED: Final = _ANNOTATIONS | {"type", "const", "enum"}


def narrow(one: Any, other: Any) -> Any:
    """What both accept."""
    if one == other or _anything(other):
        return one
    if _anything(one):
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = cast("Json", one), cast("Json", other)
        shared = one.keys() & other.keys() - _ANNOTATIONS
        plain = other.keys() <= _MERGED or one.keys() <= _MERGED
        if plain and all(_same(one[key], other[key]) for key in shared):
            return other | one
        values, others = values_of(one), values_of(other)
        if values is not None and others is not None and one.keys() | other.keys() <= _MERGED:
            kept = [value for value in values if any(value == rest for rest in others)]
            dropped = {"const", *({"type"} & shared)}
            return {key: value for key, value in (other | one).items() if key not in dropped} | {"enum": kept}
    return {"allOf": [cast("Any", one), other]}


def widen(definitions: list[Any]) -> Any:
    """What any of them accepts."""
    spread = [part for definition in definitions for part in _alternatives(definition)]
    kinds: list[Any] = []
    for definition in spread:
        if definition is not False and not any(_same(_bare(definition), _bare(kind)) for kind in kinds):
            kinds.append(definition)
    if len(kinds) < 2:
        return kinds[0] if kinds else False
    listed = [values_of(kind) for kind in kinds]
    if any(values is None for values in listed):
        return {"anyOf": kinds}
    enum: list[Any] = []
    for value in (value for values in listed for value in values or ()):
        if not any(_same(value, known) for known in enum):
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


def _anything(definition: Any) -> bool:
    return any(isinstance(part, dict) and not _bare(part) for part in _alternatives(definition))


def _bare(definition: Any) -> Any:
    if not isinstance(definition, dict):
        return definition
    return {key: value for key, value in cast("Json", definition).items() if key not in _ANNOTATIONS}


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: in Python alone True is 1, also inside a list or an object."""
    return one == other and repr(one) == repr(other)


def rules(root: Json) -> Iterator[str]:
    parts = [root, *(part for part in (resolved(part, root) for part in as_list(root.get("allOf"))))]
    for schema in parts:
        if options := _options(schema.get("oneOf"), root):
            yield f"Exactly one of: {options}."
        if options := _options(schema.get("anyOf"), root):
            yield f"At least one of: {options}."
        if "if" in schema:
            when = _said(schema["if"], root) or "a condition holds"
            then, other = _said(schema.get("then"), root), _said(schema.get("else"), root)
            yield f"If {when}: {then or 'no more'}{f'; else: {other}' if other else ''}."
        for keyword in ("dependentSchemas", "dependencies"):
            for name, dependent in as_dict(schema.get(keyword)).items():
                needs = " and ".join(map(str, cast("list[Any]", dependent))) if isinstance(dependent, list) else ""
                yield f"With {name}: {needs or _said(dependent, root) or 'more rules apply'}."
        if "not" in schema:
            yield f"Not allowed: {_said(schema['not'], root) or 'some combinations'}."


def _options(branches: Any, root: Json) -> str:
    said = [_said(branch, root) for branch in as_list(branches) if takes_objects(branch)]
    return " | ".join(dict.fromkeys(text for text in said if text))


def _said(schema: Any, root: Json) -> str:
    """The tags and required properties of one form: `action=move, from and to`."""
    schema = resolved(schema, root)
    tags = {name: values_of(definition) for name, definition in as_dict(schema.get("properties")).items()}
    fixed = [f"{name}={'/'.join(map(str, values[:5]))}" for name, values in tags.items() if values]
    needs = [str(name) for name in as_list(schema.get("required")) if not tags.get(str(name))]
    said = ", ".join([*fixed, " and ".join(needs)] if needs else fixed)
    return said or str(schema.get("title", ""))[:60]


_MAX_WORDS: Final = 600


def flatten(schema: Json) -> Json:
    """The schema itself when its root is plain, else a plain one in its place. Never changes what it is given."""
    if not REMOVED & schema.keys() or not portable(schema):
        return schema
    form = _form(schema, schema, 0)
    flat = {key: value for key, value in schema.items() if key not in REMOVED and key != "unevaluatedProperties"}
    flat |= {"type": "object", "properties": form.properties}
    if form.required:
        flat["required"] = form.required
    if form.closed:
        flat.setdefault("additionalProperties", False)
    words = " ".join(rules(schema))
    if words:
        said = words if len(words) <= _MAX_WORDS else words[: _MAX_WORDS - 1] + "…"
        flat["description"] = f"{schema.get('description', '')}\n\n{said}".strip()
    return flat


@dataclass(frozen=True, slots=True)
class _Form:
    """What a schema says of an object's properties."""

    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    required: list[str] = field(default_factory=list[str])
    closed: bool = False
    named_only: bool = True
    """Whether it speaks of no property but by name."""


def _form(schema: Any, root: Json, nesting: int) -> _Form:
    if not isinstance(schema, dict):
        return _Form()
    if nesting > MAX_NESTING:
        return _Form(named_only=False)
    schema = cast("Json", schema)
    form = _own(schema)
    if isinstance(ref := schema.get("$ref"), str):
        target = target_of(ref, root)
        form = _both(form, _Form(named_only=False) if target is None else _form(target, root, nesting + 1))
    for part in as_list(schema.get("allOf")):
        form = _both(form, _form(part, root, nesting + 1))
    for group in _groups(schema):
        form = _both(form, _either([_form(part, root, nesting + 1) for part in group]))
    if schema.get("unevaluatedProperties") is False and form.named_only:
        return _Form(form.properties, form.required, closed=True)
    return form


def _own(schema: Json) -> _Form:
    rest = schema.get("additionalProperties")
    patterns = bool(schema.get("patternProperties"))
    return _Form(
        dict(as_dict(schema.get("properties"))),
        [name for name in as_list(schema.get("required")) if isinstance(name, str)],
        closed=rest is False and not patterns,
        named_only=rest in (None, False) and not patterns and schema.get("unevaluatedProperties") in (None, False),
    )


def _groups(schema: Json) -> Iterator[list[Any]]:
    """The alternatives a schema leaves, group by group; `{}` stands for a condition that does not hold."""
    for keyword in ("anyOf", "oneOf"):
        if branches := [branch for branch in as_list(schema.get(keyword)) if takes_objects(branch)]:
            yield branches
    if "if" in schema:
        yield [{"allOf": [schema["if"], schema.get("then", {})]}, schema.get("else", {})]
    for keyword in ("dependentSchemas", "dependencies"):
        for dependent in as_dict(schema.get(keyword)).values():
            yield [dependent, {}]


def _both(one: _Form, other: _Form) -> _Form:
    properties = dict(one.properties)
    for name, definition in other.properties.items():
        properties[name] = narrow(properties[name], definition) if name in properties else definition
    return _Form(
        properties,
        list(dict.fromkeys([*one.required, *other.required])),
        one.closed or other.closed,
        one.named_only and other.named_only,
    )


def _either(forms: list[_Form]) -> _Form:
    properties: dict[str, Any] = {}
    for name in dict.fromkeys(name for form in forms for name in form.properties):
        definitions = [form.properties[name] for form in forms if name in form.properties]
        # Where an open form does not speak of it, it may be anything.
        anything = any(name not in form.properties and not form.closed for form in forms)
        properties[name] = widen([*definitions, {}] if anything else definitions)
    return _Form(
        properties,
        [name for name in forms[0].required if all(name in form.required for form in forms)],
        all(form.closed for form in forms),
        all(form.named_only for form in forms),
    )
