"""What one keyword costs the validator, in units."""

from functools import lru_cache
from typing import Any, Final

import jsonschema_rs as rs

from gateway.catalogue.schema.bounds import inside
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
