"""A schema without some of its patterns."""

from typing import Any, Final, cast

from gateway.catalogue.schema.keywords import MAPS, POSITIONS
from gateway.contract import Json

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
