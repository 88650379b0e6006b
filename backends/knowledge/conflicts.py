"""Contradictions: kept for an hour, until somebody says which fact stands."""

import json
from typing import Final

from sqlalchemy import delete, insert, select, update

from backends.knowledge import timestamps, triples
from backends.knowledge.tables import conflicts
from backends.knowledge.unit_of_work import Book
from gateway.contract import Json
from gateway.errors import Fault, Kind

KEPT_SECONDS: Final = 3600
STRATEGIES: Final = ("replace", "retain_both", "reject")


async def relate(book: Book, arguments: Json) -> Json:
    """The triple, and whether it is new; or, when nothing was written, the conflict with what is known."""
    triple = await triples.prepare(book, arguments)
    if (known := await triples.twin_of(book, triple)) is not None:
        return {**known, "created": False}
    rivals = [] if triple["multi"] else await triples.rivals_of(book, triple)
    if rivals:
        return await _open(book, triple, rivals)
    return {**await triples.create(book, triple), "created": True}


async def _open(book: Book, incoming: Json, existing: list[Json]) -> Json:
    await book.connection.execute(delete(conflicts).where(conflicts.c.expires_at < book.now))
    conflict: Json = {
        "conflict_id": book.new_id(),
        "scope": f"{incoming['subject']}/{incoming['predicate']}",
        "existing": existing[0],
        "others": existing[1:],
        "incoming": incoming,
        "candidate_resolutions": list(STRATEGIES),
        "expires_at": timestamps.later(KEPT_SECONDS),
    }
    row = {"id": conflict["conflict_id"], "expires_at": conflict["expires_at"]}
    await book.connection.execute(insert(conflicts), {**row, "body": json.dumps(conflict, ensure_ascii=False)})
    return conflict


async def find(book: Book, conflict_id: str) -> Json | None:
    """The conflict as it was found, with its resolution once it has one; None when unknown or expired."""
    statement = select(conflicts).where(conflicts.c.id == conflict_id, conflicts.c.expires_at >= book.now)
    row = (await book.connection.execute(statement)).first()
    return {**json.loads(row.body), "resolution": row.resolution} if row is not None else None


async def resolve(book: Book, arguments: Json) -> Json:
    """Carry the strategy out on what is there now, not on what was there when the conflict was found."""
    await book.begin_writing()
    conflict_id, strategy = arguments["conflict_id"], arguments["strategy"]
    conflict = await find(book, conflict_id)
    if conflict is None:
        raise Fault(
            Kind.NOT_FOUND,
            f"There is no open conflict {conflict_id[:64]!r}: they are kept for an hour.",
            suggested_fix="Call relate again to see whether the facts still contradict each other.",
        )
    if conflict["resolution"] is not None:
        raise Fault(Kind.ILLEGAL_STATE, f"That conflict was resolved before: {conflict['resolution']}.")
    await book.connection.execute(update(conflicts).where(conflicts.c.id == conflict_id).values(resolution=strategy))
    triple, replaced = await _carry_out(book, conflict["incoming"], strategy, arguments.get("actor"))
    return {
        "conflict_id": conflict_id,
        "strategy": strategy,
        "triple": triple,
        "replaced_ids": [old["id"] for old in replaced],
    }


async def _carry_out(book: Book, incoming: Json, strategy: str, actor: str | None) -> tuple[Json | None, list[Json]]:
    if strategy == "reject":
        return None, []
    # The id it was refused under stays unused: the order of ids is the order of creation.
    fresh = {"id": book.new_id(), "recorded_at": book.now, "updated_at": book.now}
    triple = {**incoming, **fresh, "multi": strategy == "retain_both" or incoming["multi"]}
    replaced = await triples.rivals_of(book, triple) if strategy == "replace" else []
    await triples.create(book, triple, replaced, actor=actor)
    return triple, replaced
