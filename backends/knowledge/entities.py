"""Entities: one thing under all of its names."""

from sqlalchemy import func, or_, select

from backends.knowledge import ledger, provenance
from backends.knowledge.row_mapping import names_of
from backends.knowledge.tables import entries, names, triples
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import Book, Change
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def upsert(book: Book, arguments: Json) -> Json:
    """The entity of that name, with these aliases too, and whether it is new."""
    given: list[str] = arguments.get("aliases") or []
    aliases = [alias.strip() for alias in given]
    provenance.check_filled({"name": arguments["name"], **{f"aliases.{n}": alias for n, alias in enumerate(aliases)}})
    await book.begin_writing()
    before = await _named(book, arguments["name"])
    if before is None:
        return await _create(book, arguments, aliases)
    after = _with_aliases(book, before, aliases)
    if after is not before:
        await ledger.record(
            book, "UPDATE", [Change("entity", before["id"], before, after)], actor=arguments.get("actor")
        )
    return {**after, "created": False}


async def _create(book: Book, arguments: Json, aliases: list[str]) -> Json:
    bare: Json = {"id": book.new_id(), "name": arguments["name"].strip(), "aliases": []}
    bare |= {"version": 1, "recorded_at": book.now, "updated_at": book.now}
    entity: Json = {**_with_aliases(book, bare, aliases), "version": 1}
    await ledger.record(book, "CREATE", [Change("entity", entity["id"], None, entity)], actor=arguments.get("actor"))
    return {**entity, "created": True}


async def merge(book: Book, arguments: Json) -> Json:
    """All names of the one become names of the other; what was said of either is now said of one."""
    keep_id, merge_id = arguments["keep_id"], arguments["merge_id"]
    if keep_id == merge_id:
        raise Fault(Kind.INVALID_INPUT, "keep_id and merge_id are the same entity.")
    await book.begin_writing()
    keep = await ledger.get(book, "entity", keep_id)
    gone = await ledger.get(book, "entity", merge_id)
    linked = await _linked(book, gone)
    after = _with_aliases(book, keep, [gone["name"], *gone["aliases"]])
    if not arguments.get("dry_run"):
        # The names are given up before they are taken, and on undo in the opposite order.
        changes = [Change("entity", merge_id, gone, None), Change("entity", keep_id, keep, after)]
        await ledger.record(book, "MERGE", changes, actor=arguments.get("actor"))
    return {
        **after,
        "merged_id": merge_id,
        "merged_count": len(names_of(gone)),
        "linked": linked,
        "dry_run": bool(arguments.get("dry_run")),
    }


async def _named(book: Book, name: str) -> Json | None:
    statement = select(names.c.entity_id).where(names.c.name_key == fold(name))
    entity_id = (await book.connection.execute(statement)).scalar()
    return await ledger.find(book, "entity", entity_id) if entity_id is not None else None


def _with_aliases(book: Book, entity: Json, aliases: list[str]) -> Json:
    """The entity itself when it has them all."""
    known = set(names_of(entity))
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
        "updated_at": book.now,
    }


async def _linked(book: Book, entity: Json) -> Json:
    """How much is said of it, under any of its names."""
    keys = names_of(entity)
    of_entries = select(func.count()).select_from(entries)
    of_entries = of_entries.where(entries.c.topic_key.in_(keys), entries.c.deleted_at.is_(None))
    touching = or_(triples.c.subject_key.in_(keys), triples.c.object_key.in_(keys))
    of_triples = select(func.count()).select_from(triples).where(touching, triples.c.deleted_at.is_(None))
    return {
        "entries": (await book.connection.execute(of_entries)).scalar_one(),
        "triples": (await book.connection.execute(of_triples)).scalar_one(),
    }
