"""Entries: what is known about a topic, in words."""

from typing import Final

from sqlalchemy import bindparam, select

from backends.knowledge import ledger, provenance
from backends.knowledge.tables import entries, names
from backends.knowledge.text_keys import digest, fold
from backends.knowledge.unit_of_work import Book, Change
from gateway.contract import Json

_FIELDS: Final = ("topic", "content", "tags")
_OWNERS: Final = select(names).where(names.c.name_key.in_(bindparam("keys", expanding=True)))
_KNOWN: Final = select(entries.c.content_digest).where(
    entries.c.content_digest.in_(bindparam("digests", expanding=True)), entries.c.deleted_at.is_(None)
)


async def store(book: Book, arguments: Json) -> Json:
    provenance.check_filled({name: arguments[name] for name in ("topic", "content")})
    await book.begin_writing()
    entry = new_entry(book, arguments)
    await ledger.record(book, "CREATE", [Change("entry", entry["id"], None, entry)], actor=arguments.get("actor"))
    return await with_entity(book, entry)


def new_entry(book: Book, arguments: Json) -> Json:
    """Not yet recorded."""
    entry: Json = {"id": book.new_id(), "topic": arguments["topic"], "content": arguments["content"]}
    return entry | {"tags": _distinct(arguments.get("tags") or [])} | provenance.of(book, arguments)


async def update(book: Book, arguments: Json) -> Json:
    provenance.check_filled({name: arguments.get(name) for name in ("topic", "content")})
    await book.begin_writing()
    before = await ledger.get(book, "entry", arguments["id"], arguments.get("expected_version"))
    if "tags" in arguments:
        arguments = {**arguments, "tags": _distinct(arguments["tags"])}
    after = provenance.updated(book, before, arguments, _FIELDS)
    await ledger.record(book, "UPDATE", [Change("entry", before["id"], before, after)], actor=arguments.get("actor"))
    return await with_entity(book, after)


async def known_contents(book: Book, contents: list[str]) -> set[str]:
    """Those of the contents that a living entry already says, word for word."""
    by_digest = {digest(content): content for content in contents}
    known = await book.connection.execute(_KNOWN, {"digests": list(by_digest)})
    return {by_digest[found] for found in known.scalars()}


async def with_entity(book: Book, entry: Json) -> Json:
    return (await with_entities(book, [entry]))[0]


async def with_entities(book: Book, found: list[Json]) -> list[Json]:
    """Each entry with the entity that its topic names, if there is one."""
    keys = {entry["id"]: fold(entry["topic"]) for entry in found}
    named = await book.connection.execute(_OWNERS, {"keys": list(set(keys.values()))})
    owners = {row.name_key: row.entity_id for row in named}
    return [{**entry, "canonical_entity_id": owners.get(keys[entry["id"]])} for entry in found]


def _distinct(tags: list[str]) -> list[str]:
    return list(dict.fromkeys(tag for tag in (tag.strip() for tag in tags) if tag))
