"""Maps entries, triples and entities between JSON snapshots and table rows."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import TableClause, bindparam, delete, insert, select

from backends.knowledge.tables import entities, entries, entry_tags, names, pending_vectors, triples
from backends.knowledge.text_keys import digest, fold, normalize
from backends.knowledge.unit_of_work import UnitOfWork
from backends.knowledge.uris import EntityType
from gateway.contract import Json
from gateway.errors import Fault, Kind

_PROVENANCE: Final = ("source", "actor", "confidence", "valid_from", "valid_to", "version", "recorded_at", "updated_at")


@dataclass(frozen=True, slots=True)
class RowMapper:
    """The mapping of one entity type to its table."""

    table: TableClause
    to_row: Callable[[Json], Json]
    from_row: Callable[[Any], Json]
    sync_related: Callable[[UnitOfWork, str, Json | None, Json | None], Awaitable[None]]
    """Updates the rows in related tables (tags, names) from the old to the new snapshot, after the main row."""


# ---- entries ------------------------------------------------------------------------------------------------------


def _entry_row(entry: Json) -> Json:
    tags = json.dumps(entry["tags"], ensure_ascii=False)
    row = {**entry, "tags": tags, "topic_key": fold(entry["topic"]), "content_digest": digest(entry["content"])}
    row.pop("canonical_entity_id", None)
    return {**row, "duplicate_digest": duplicate_digest(entry)}


def duplicate_digest(entry: Json) -> str:
    """Return the digest that entries with the same normalized topic, content and tags share."""
    tags = sorted({fold(tag) for tag in entry["tags"]})
    return digest(json.dumps([fold(entry["topic"]), normalize(entry["content"]), tags]))


def entry_from_row(row: Any) -> Json:
    entry: Json = {"id": row.id, "topic": row.topic, "content": row.content, "tags": json.loads(row.tags)}
    return entry | {name: getattr(row, name) for name in (*_PROVENANCE, "source_start", "source_end")}


_INSERT_TAGS: Final = insert(entry_tags)
_DELETE_TAGS: Final = delete(entry_tags).where(entry_tags.c.entry_id == bindparam("untagged"))


_QUEUE: Final = insert(pending_vectors)
_UNQUEUE: Final = delete(pending_vectors).where(pending_vectors.c.entry_id == bindparam("queued"))
_TEXT_FIELDS: Final = ("topic", "content", "tags")


async def _sync_entry(unit: UnitOfWork, id_: str, before: Json | None, after: Json | None) -> None:
    await _sync_entry_tags(unit, id_, before, after)
    if after is not None and (before is None or any(before[name] != after[name] for name in _TEXT_FIELDS)):
        if before is not None or after["version"] > 1:
            await unit.connection.execute(_UNQUEUE, {"queued": id_})
        await unit.connection.execute(_QUEUE, {"entry_id": id_})


async def _sync_entry_tags(unit: UnitOfWork, id_: str, before: Json | None, after: Json | None) -> None:
    old_tags: list[str] = before["tags"] if before else []
    new_tags: list[str] = after["tags"] if after else []
    if old_tags == new_tags:
        return
    if old_tags:
        await unit.connection.execute(_DELETE_TAGS, {"untagged": id_})
    if new_tags:
        await unit.connection.execute(_INSERT_TAGS, [{"tag": tag, "entry_id": id_} for tag in new_tags])


# ---- triples ------------------------------------------------------------------------------------------------------

_PARTS: Final = ("subject", "predicate", "object")


def _triple_row(triple: Json) -> Json:
    keys = {f"{part}_key": fold(triple[part]) for part in _PARTS}
    return {**triple, **keys, "multi": int(triple["multi"]), "inferred": int(triple.get("inferred", False))}


def triple_from_row(row: Any) -> Json:
    triple: Json = {"id": row.id, **{part: getattr(row, part) for part in _PARTS}, "multi": bool(row.multi)}
    triple |= {"entry_id": row.entry_id, "inferred": bool(row.inferred)}
    return triple | {name: getattr(row, name) for name in _PROVENANCE}


async def _sync_nothing(unit: UnitOfWork, id_: str, before: Json | None, after: Json | None) -> None:
    """Triples have no related rows."""


# ---- entities -----------------------------------------------------------------------------------------------------


def _entity_row(entity: Json) -> Json:
    return {**entity, "aliases": json.dumps(entity["aliases"], ensure_ascii=False)}


def entity_from_row(row: Any) -> Json:
    return {
        "id": row.id,
        "name": row.name,
        "aliases": json.loads(row.aliases),
        "version": row.version,
        "recorded_at": row.recorded_at,
        "updated_at": row.updated_at,
    }


async def _sync_entity_names(unit: UnitOfWork, id_: str, before: Json | None, after: Json | None) -> None:
    unit.name_cache.clear()
    if before is not None:
        await unit.connection.execute(delete(names).where(names.c.entity_id == id_))
    if after is None:
        return
    keys = name_keys(after)
    owners = await unit.connection.execute(select(names).where(names.c.name_key.in_(keys)))
    if (owner := owners.first()) is not None:
        raise Fault(
            Kind.ILLEGAL_STATE,
            f"The name {owner.name_key[:100]!r} belongs to another entity.",
            details={"entity_id": owner.entity_id},
            suggested_fix="Merge the two entities with merge_entities, or omit the name.",
        )
    await unit.connection.execute(insert(names), [{"name_key": key, "entity_id": id_} for key in keys])


def name_keys(entity: Json) -> list[str]:
    """Return the keys of the entity's name and aliases."""
    return list(dict.fromkeys(map(fold, [entity["name"], *entity["aliases"]])))


MAPPERS: Final[dict[EntityType, RowMapper]] = {
    "entry": RowMapper(entries, _entry_row, entry_from_row, _sync_entry),
    "triple": RowMapper(triples, _triple_row, triple_from_row, _sync_nothing),
    "entity": RowMapper(entities, _entity_row, entity_from_row, _sync_entity_names),
}
