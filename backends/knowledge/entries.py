"""Entries: free text about a topic, with tags and provenance."""

from typing import Final

from sqlalchemy import bindparam, select

from backends.knowledge import ledger, provenance
from backends.knowledge.duplicates import find_duplicate, find_similar
from backends.knowledge.tables import entries, names
from backends.knowledge.text_keys import digest, fold
from backends.knowledge.unit_of_work import Change, UnitOfWork
from gateway.contract import Json

_FIELDS: Final = ("topic", "content", "tags")
_FIND_NAMES: Final = select(names).where(names.c.name_key.in_(bindparam("keys", expanding=True)))
_FIND_DIGESTS: Final = select(entries.c.content_digest).where(
    entries.c.content_digest.in_(bindparam("digests", expanding=True)), entries.c.deleted_at.is_(None)
)


async def store(unit: UnitOfWork, arguments: Json) -> Json:
    provenance.check_not_blank({name: arguments[name] for name in ("topic", "content")})
    await unit.begin_writing()
    entry = new_entry(unit, arguments)
    on_duplicate = arguments.get("on_duplicate", "return")
    known = await find_duplicate(unit, entry) if on_duplicate != "store" else None
    if known is not None:
        if on_duplicate == "update":
            known = await _refresh(unit, known, arguments)
        return {**await with_entity(unit, known), "duplicate_of": known["id"]}
    similar = await find_similar(unit, entry)
    await ledger.record(unit, "CREATE", [Change("entry", entry["id"], None, entry)], actor=arguments.get("actor"))
    stored = await with_entity(unit, entry)
    return {**stored, "similar_to": similar} if similar else stored


async def _refresh(unit: UnitOfWork, known: Json, arguments: Json) -> Json:
    """Update the text and provenance of a known entry to those of the same entry stored again."""
    supplied = {name: arguments[name] for name in (*_FIELDS, "source", "actor", "confidence") if name in arguments}
    if all(known[name] == value for name, value in supplied.items()):
        return known
    after = provenance.apply_update(unit, known, supplied, _FIELDS)
    await ledger.record(unit, "UPDATE", [Change("entry", known["id"], known, after)], actor=arguments.get("actor"))
    return after


def new_entry(unit: UnitOfWork, arguments: Json) -> Json:
    """Return a new entry without recording it."""
    entry: Json = {"id": unit.new_id(), "topic": arguments["topic"], "content": arguments["content"]}
    entry |= {name: arguments.get(name) for name in ("source_start", "source_end")}
    return entry | {"tags": _deduplicate(arguments.get("tags") or [])} | provenance.create(unit, arguments)


async def update(unit: UnitOfWork, arguments: Json) -> Json:
    provenance.check_not_blank({name: arguments.get(name) for name in ("topic", "content")})
    await unit.begin_writing()
    before = await ledger.get(unit, "entry", arguments["id"], arguments.get("expected_version"))
    if "tags" in arguments:
        arguments = {**arguments, "tags": _deduplicate(arguments["tags"])}
    after = provenance.apply_update(unit, before, arguments, _FIELDS)
    await ledger.record(unit, "UPDATE", [Change("entry", before["id"], before, after)], actor=arguments.get("actor"))
    return await with_entity(unit, after)


async def find_known_contents(unit: UnitOfWork, contents: list[str]) -> set[str]:
    """Return those contents that an active entry already has, compared exactly."""
    by_digest = {digest(content): content for content in contents}
    known = await unit.connection.execute(_FIND_DIGESTS, {"digests": list(by_digest)})
    return {by_digest[found] for found in known.scalars()}


async def with_entity(unit: UnitOfWork, entry: Json) -> Json:
    return (await with_entities(unit, [entry]))[0]


async def with_entities(unit: UnitOfWork, found: list[Json]) -> list[Json]:
    """Add to each entry the id of the entity that its topic names, or None."""
    keys = {entry["id"]: fold(entry["topic"]) for entry in found}
    rows = await unit.connection.execute(_FIND_NAMES, {"keys": list(set(keys.values()))})
    owners = {row.name_key: row.entity_id for row in rows}
    return [{**entry, "canonical_entity_id": owners.get(keys[entry["id"]])} for entry in found]


def _deduplicate(tags: list[str]) -> list[str]:
    return list(dict.fromkeys(tag for tag in (tag.strip() for tag in tags) if tag))
