"""Resolves a name to all names of its entity."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import bindparam, select

from backends.knowledge.tables import names
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import UnitOfWork

_siblings = names.alias("others")
_SIBLING_NAMES: Final = (
    select(_siblings.c.name_key)
    .select_from(names.join(_siblings, _siblings.c.entity_id == names.c.entity_id))
    .where(names.c.name_key.in_(bindparam("keys", expanding=True)))
)


async def equivalent_names(unit: UnitOfWork, name: str) -> set[str]:
    """Return the keys of all names of the entity with this name, or only the name's own key."""
    key = fold(name)
    if key not in unit.name_cache:
        unit.name_cache[key] = await expand_names(unit, [key])
    return unit.name_cache[key]


async def expand_names(unit: UnitOfWork, keys: Iterable[str]) -> set[str]:
    """Return the keys together with the keys of all other names of their entities."""
    known = set(keys)
    return known | set((await unit.connection.execute(_SIBLING_NAMES, {"keys": list(known)})).scalars())
