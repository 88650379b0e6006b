"""The rules that a flattened schema can no longer hold, in words."""

from collections.abc import Iterator
from typing import Any, cast

from gateway.catalogue.flatten.parts import as_dict, as_list, resolved, takes_objects, values_of
from gateway.contract import Json


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
