"""What a schema says of an object's properties, and the plain schema that says the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gateway.catalogue.flatten.parts import MAX_NESTING, REMOVED, as_dict, as_list, portable, takes_objects, target_of
from gateway.catalogue.flatten.property import narrow, widen
from gateway.catalogue.flatten.words import rules
from gateway.contract import Json

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
