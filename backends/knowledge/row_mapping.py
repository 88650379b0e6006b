"""How each kind of thing lies in its tables: from snapshot to rows and back."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import TableClause, bindparam, delete, insert, select

from backends.knowledge.tables import entities, entries, entry_tags, names, triples
from backends.knowledge.text_keys import digest, fold
from backends.knowledge.unit_of_work import Book, EntityType
from gateway.contract import Json
from gateway.errors import Fault, Kind

_PROVENANCE: Final = ("source", "actor", "confidence", "valid_from", "valid_to", "version", "recorded_at", "updated_at")


@dataclass(frozen=True, slots=True)
class Shelf:
    table: TableClause
    to_row: Callable[[Json], Json]
    from_row: Callable[[Any], Json]
    settle: Callable[[Book, str, Json | None, Json | None], Awaitable[None]]
    """What lies beside the row, such as tags and names, as it was before and is to be after; the row is written."""


# ---- entries ------------------------------------------------------------------------------------------------------


def _entry_row(entry: Json) -> Json:
    tags = json.dumps(entry["tags"], ensure_ascii=False)
    row = {**entry, "tags": tags, "topic_key": fold(entry["topic"]), "content_digest": digest(entry["content"])}
    row.pop("canonical_entity_id", None)
    return row


def entry_from(row: Any) -> Json:
    entry: Json = {"id": row.id, "topic": row.topic, "content": row.content, "tags": json.loads(row.tags)}
    return entry | {name: getattr(row, name) for name in _PROVENANCE}


_TAG: Final = insert(entry_tags)
_UNTAG: Final = delete(entry_tags).where(entry_tags.c.entry_id == bindparam("untagged"))


async def _settle_entry(book: Book, id_: str, before: Json | None, after: Json | None) -> None:
    had: list[str] = before["tags"] if before else []
    has: list[str] = after["tags"] if after else []
    if had == has:
        return
    if had:
        await book.connection.execute(_UNTAG, {"untagged": id_})
    if has:
        await book.connection.execute(_TAG, [{"tag": tag, "entry_id": id_} for tag in has])


# ---- triples ------------------------------------------------------------------------------------------------------

_PARTS: Final = ("subject", "predicate", "object")


def _triple_row(triple: Json) -> Json:
    keys = {f"{part}_key": fold(triple[part]) for part in _PARTS}
    return {**triple, **keys, "multi": int(triple["multi"])}


def triple_from(row: Any) -> Json:
    triple: Json = {"id": row.id, **{part: getattr(row, part) for part in _PARTS}, "multi": bool(row.multi)}
    return triple | {name: getattr(row, name) for name in _PROVENANCE}


async def _settle_triple(book: Book, id_: str, before: Json | None, after: Json | None) -> None:
    """All of it is in its row."""


# ---- entities -----------------------------------------------------------------------------------------------------


def _entity_row(entity: Json) -> Json:
    return {**entity, "aliases": json.dumps(entity["aliases"], ensure_ascii=False)}


def entity_from(row: Any) -> Json:
    return {
        "id": row.id,
        "name": row.name,
        "aliases": json.loads(row.aliases),
        "version": row.version,
        "recorded_at": row.recorded_at,
        "updated_at": row.updated_at,
    }


async def _settle_entity(book: Book, id_: str, before: Json | None, after: Json | None) -> None:
    book.names.clear()
    if before is not None:
        await book.connection.execute(delete(names).where(names.c.entity_id == id_))
    if after is None:
        return
    keys = names_of(after)
    taken = await book.connection.execute(select(names).where(names.c.name_key.in_(keys)))
    if (other := taken.first()) is not None:
        raise Fault(
            Kind.ILLEGAL_STATE,
            f"The name {other.name_key[:100]!r} belongs to another entity.",
            details={"entity_id": other.entity_id},
            suggested_fix="Merge the two entities with merge_entities, or leave the name out.",
        )
    await book.connection.execute(insert(names), [{"name_key": key, "entity_id": id_} for key in keys])


def names_of(entity: Json) -> list[str]:
    """Its own name and its aliases, as they are compared."""
    return list(dict.fromkeys(map(fold, [entity["name"], *entity["aliases"]])))


SHELVES: Final[dict[EntityType, Shelf]] = {
    "entry": Shelf(entries, _entry_row, entry_from, _settle_entry),
    "triple": Shelf(triples, _triple_row, triple_from, _settle_triple),
    "entity": Shelf(entities, _entity_row, entity_from, _settle_entity),
}
