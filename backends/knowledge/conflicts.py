"""Conflicts between contradicting triples: detected by `relate`, stored for one hour, settled by `resolve_conflict`."""

import json
from typing import Final

from sqlalchemy import delete, insert, select, update

from backends.knowledge import timestamps, triples
from backends.knowledge.schemas import STRATEGIES
from backends.knowledge.tables import conflicts
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind

TTL_SECONDS: Final = 3600


async def relate(unit: UnitOfWork, arguments: Json) -> Json:
    """Create a triple. Returns the triple with `created`, or, without writing it, the conflict with known triples."""
    triple = await triples.new_triple(unit, arguments)
    if (known := await triples.find_duplicate(unit, triple)) is not None:
        return {**known, "created": False}
    conflicting = [] if triple["multi"] else await triples.find_conflicting(unit, triple)
    if conflicting:
        return await _create(unit, triple, conflicting)
    return {**await triples.create(unit, triple), "created": True}


async def _create(unit: UnitOfWork, incoming: Json, existing: list[Json]) -> Json:
    await unit.connection.execute(delete(conflicts).where(conflicts.c.expires_at < unit.now))
    conflict: Json = {
        "conflict_id": unit.new_id(),
        "scope": f"{incoming['subject']}/{incoming['predicate']}",
        "existing": existing[0],
        "others": existing[1:],
        "incoming": incoming,
        "candidate_resolutions": list(STRATEGIES),
        "expires_at": timestamps.from_now(TTL_SECONDS),
    }
    row = {"id": conflict["conflict_id"], "expires_at": conflict["expires_at"]}
    await unit.connection.execute(insert(conflicts), {**row, "body": json.dumps(conflict, ensure_ascii=False)})
    return conflict


async def find(unit: UnitOfWork, conflict_id: str) -> Json | None:
    """Return the conflict as recorded, with its resolution if it has one; None when unknown or expired."""
    statement = select(conflicts).where(conflicts.c.id == conflict_id, conflicts.c.expires_at >= unit.now)
    row = (await unit.connection.execute(statement)).first()
    return {**json.loads(row.body), "resolution": row.resolution} if row is not None else None


async def resolve(unit: UnitOfWork, arguments: Json) -> Json:
    """Apply the strategy to the current triples, which may differ from those when the conflict was detected."""
    await unit.begin_writing()
    conflict_id, strategy = arguments["conflict_id"], arguments["strategy"]
    conflict = await find(unit, conflict_id)
    if conflict is None:
        raise Fault(
            Kind.NOT_FOUND,
            f"There is no open conflict {conflict_id[:64]!r}. Conflicts expire after one hour.",
            suggested_fix="Call relate again to see whether the facts still contradict each other.",
        )
    if conflict["resolution"] is not None:
        raise Fault(Kind.ILLEGAL_STATE, f"This conflict is already resolved: {conflict['resolution']}.")
    await unit.connection.execute(update(conflicts).where(conflicts.c.id == conflict_id).values(resolution=strategy))
    triple, replaced = await _apply(unit, conflict["incoming"], strategy, arguments.get("actor"))
    return {
        "conflict_id": conflict_id,
        "strategy": strategy,
        "triple": triple,
        "replaced_ids": [old["id"] for old in replaced],
    }


async def _apply(unit: UnitOfWork, incoming: Json, strategy: str, actor: str | None) -> tuple[Json | None, list[Json]]:
    if strategy == "reject":
        return None, []
    # Use a new id instead of the rejected one, so that the order of ids stays the order of creation.
    fresh = {"id": unit.new_id(), "recorded_at": unit.now, "updated_at": unit.now}
    triple = {**incoming, **fresh, "multi": strategy == "retain_both" or incoming["multi"]}
    replaced = await triples.find_conflicting(unit, triple) if strategy == "replace" else []
    await triples.create(unit, triple, replaced, actor=actor)
    return triple, replaced
