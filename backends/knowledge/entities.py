"""Entities: a canonical name with its aliases."""

from sqlalchemy import func, or_, select

from backends.knowledge import ledger, provenance
from backends.knowledge.row_mapping import name_keys
from backends.knowledge.tables import entries, names, triples
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import Change, UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def upsert(unit: UnitOfWork, arguments: Json) -> Json:
    """Create the entity or add the aliases to it. Returns the entity with `created`."""
    requested: list[str] = arguments.get("aliases") or []
    aliases = [alias.strip() for alias in requested]
    provenance.check_not_blank(
        {"name": arguments["name"], **{f"aliases.{n}": alias for n, alias in enumerate(aliases)}}
    )
    await unit.begin_writing()
    before = await _find_by_name(unit, arguments["name"])
    if before is None:
        return await _create(unit, arguments, aliases)
    after = _with_aliases(unit, before, aliases)
    if after is not before:
        await ledger.record(
            unit, "UPDATE", [Change("entity", before["id"], before, after)], actor=arguments.get("actor")
        )
    return {**after, "created": False}


async def _create(unit: UnitOfWork, arguments: Json, aliases: list[str]) -> Json:
    draft: Json = {"id": unit.new_id(), "name": arguments["name"].strip(), "aliases": []}
    draft |= {"version": 1, "recorded_at": unit.now, "updated_at": unit.now}
    entity: Json = {**_with_aliases(unit, draft, aliases), "version": 1}
    await ledger.record(unit, "CREATE", [Change("entity", entity["id"], None, entity)], actor=arguments.get("actor"))
    return {**entity, "created": True}


async def merge(unit: UnitOfWork, arguments: Json) -> Json:
    """Merge one entity into another: all names of `merge_id` become names of `keep_id`."""
    keep_id, merge_id = arguments["keep_id"], arguments["merge_id"]
    if keep_id == merge_id:
        raise Fault(Kind.INVALID_INPUT, "keep_id and merge_id are the same entity.")
    await unit.begin_writing()
    keep = await ledger.get(unit, "entity", keep_id)
    merged = await ledger.get(unit, "entity", merge_id)
    linked = await _count_linked(unit, merged)
    after = _with_aliases(unit, keep, [merged["name"], *merged["aliases"]])
    if not arguments.get("dry_run"):
        # Names are unique: release them from the merged entity first. Undo reverts in the opposite order.
        changes = [Change("entity", merge_id, merged, None), Change("entity", keep_id, keep, after)]
        await ledger.record(unit, "MERGE", changes, actor=arguments.get("actor"))
    return {
        **after,
        "merged_id": merge_id,
        "merged_count": len(name_keys(merged)),
        "linked": linked,
        "dry_run": bool(arguments.get("dry_run")),
    }


async def _find_by_name(unit: UnitOfWork, name: str) -> Json | None:
    statement = select(names.c.entity_id).where(names.c.name_key == fold(name))
    entity_id = (await unit.connection.execute(statement)).scalar()
    return await ledger.find(unit, "entity", entity_id) if entity_id is not None else None


def _with_aliases(unit: UnitOfWork, entity: Json, aliases: list[str]) -> Json:
    """Return the entity with the aliases added; the same object when it already has all of them."""
    known = set(name_keys(entity))
    added: list[str] = []
    for alias in aliases:
        if (key := fold(alias)) not in known:
            known.add(key)
            added.append(alias)
    if not added:
        return entity
    return {
        **entity,
        "aliases": [*entity["aliases"], *added],
        "version": entity["version"] + 1,
        "updated_at": unit.now,
    }


async def _count_linked(unit: UnitOfWork, entity: Json) -> Json:
    """Count the entries and triples that mention any name of the entity."""
    keys = name_keys(entity)
    entry_count = select(func.count()).select_from(entries)
    entry_count = entry_count.where(entries.c.topic_key.in_(keys), entries.c.deleted_at.is_(None))
    mentions = or_(triples.c.subject_key.in_(keys), triples.c.object_key.in_(keys))
    triple_count = select(func.count()).select_from(triples).where(mentions, triples.c.deleted_at.is_(None))
    return {
        "entries": (await unit.connection.execute(entry_count)).scalar_one(),
        "triples": (await unit.connection.execute(triple_count)).scalar_one(),
    }
