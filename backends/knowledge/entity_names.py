"""Which names mean the same: those of one entity, or else just the name itself."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import bindparam, select

from backends.knowledge.tables import names
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import Book

_others = names.alias("others")
_ALL_NAMES: Final = (
    select(_others.c.name_key)
    .select_from(names.join(_others, _others.c.entity_id == names.c.entity_id))
    .where(names.c.name_key.in_(bindparam("keys", expanding=True)))
)


async def same(book: Book, name: str) -> set[str]:
    """All names of what this name means, as they are compared."""
    key = fold(name)
    if key not in book.names:
        book.names[key] = await spread(book, [key])
    return book.names[key]


async def spread(book: Book, keys: Iterable[str]) -> set[str]:
    """The keys with all other names of the entities they belong to."""
    known = set(keys)
    return known | set((await book.connection.execute(_ALL_NAMES, {"keys": list(known)})).scalars())
