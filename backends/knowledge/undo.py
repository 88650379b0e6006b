"""Undo: reverts the newest transactions, newest first, all or none."""

import json
from typing import Any, Final

from sqlalchemy import Integer, bindparam, select, update

from backends.knowledge import ledger
from backends.knowledge.entity_names import equivalent_names
from backends.knowledge.history import TRANSACTIONS_OF_ENTITY
from backends.knowledge.tables import transactions, triples
from backends.knowledge.text_keys import fold
from backends.knowledge.triples import OVERLAPS, validity_values
from backends.knowledge.unit_of_work import Change, UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind

_newest_first = transactions.c.id.desc()
_not_reverted = (transactions.c.op != "REVERT", transactions.c.reverted_by.is_(None))
_NEWEST: Final = (
    select(transactions).where(*_not_reverted).order_by(_newest_first).limit(bindparam("count", type_=Integer))
)
_NEWEST_OF: Final = _NEWEST.where(transactions.c.actor == bindparam("actor"))
_MARK: Final = update(transactions).where(transactions.c.id == bindparam("reverted"))
_LATER: Final = (
    select(transactions.c.id)
    .where(
        transactions.c.id.in_(TRANSACTIONS_OF_ENTITY), transactions.c.id > bindparam("transaction_id"), *_not_reverted
    )
    .order_by(_newest_first)
    .limit(10)
)
_CONFLICTING: Final = (
    select(triples.c.id)
    .where(
        triples.c.subject_key.in_(bindparam("subjects", expanding=True)),
        triples.c.predicate_key == bindparam("predicate"),
        triples.c.deleted_at.is_(None),
        triples.c.multi == 0,
        triples.c.id > bindparam("transaction_id"),
        OVERLAPS,
    )
    .limit(10)
)


async def undo(unit: UnitOfWork, arguments: Json) -> Json:
    """Revert transactions. Returns the ids of the reverted transactions and of their REVERT transactions."""
    await unit.begin_writing()
    reverted: list[str] = []
    for row in await _find_newest(unit, arguments.get("count", 1), arguments.get("actor")):
        await _revert(unit, row)
        reverted.append(row.id)
    return {"reverted": reverted, "revert_ids": [written.id for written in unit.recorded]}


async def _find_newest(unit: UnitOfWork, count: int, actor: str | None) -> list[Any]:
    rows = await unit.connection.execute(_NEWEST if actor is None else _NEWEST_OF, {"count": count, "actor": actor})
    return list(rows)


async def _revert(unit: UnitOfWork, row: Any) -> None:
    changes: list[Change] = []
    for change in reversed(json.loads(row.changes)):
        await _check_not_superseded(unit, row.id, change)
        changes.append(await _inverse(unit, change))
    written = await ledger.record(unit, "REVERT", changes, entity_id=row.entity_id, reverts=row.id)
    await unit.connection.execute(_MARK, {"reverted": row.id, "reverted_by": written.id})


async def _inverse(unit: UnitOfWork, change: Json) -> Change:
    current = await ledger.find(unit, change["kind"], change["id"])
    before = change["before"]
    if before is not None:
        # Versions keep increasing, so that a client with the undone version detects the change.
        before = {**before, "version": await ledger.get_version(unit, change["kind"], change["id"]) + 1}
    return Change(change["kind"], change["id"], current, before)


async def _check_not_superseded(unit: UnitOfWork, transaction_id: str, change: Json) -> None:
    """Raise `Fault(ILLEGAL_STATE)` if a later transaction depends on this change."""
    values = {"entity_id": change["id"], "transaction_id": transaction_id}
    blocking = list((await unit.connection.execute(_LATER, values)).scalars())
    if blocking:
        raise _blocked(transaction_id, change, {"blocked_by": blocking})
    if change["kind"] == "triple" and change["before"] is not None:
        await _check_no_conflict(unit, transaction_id, change)


async def _check_no_conflict(unit: UnitOfWork, transaction_id: str, change: Json) -> None:
    """Raise if restoring the triple would contradict a triple that was created after its removal."""
    restored = change["before"]
    if restored["multi"]:
        return
    values: Json = {
        "subjects": list(await equivalent_names(unit, restored["subject"])),
        "predicate": fold(restored["predicate"]),
        "transaction_id": transaction_id,
        **validity_values(restored),
    }
    later = list((await unit.connection.execute(_CONFLICTING, values)).scalars())
    if later:
        raise _blocked(transaction_id, change, {"contradicted_by": later})


def _blocked(transaction_id: str, change: Json, details: Json) -> Fault:
    return Fault(
        Kind.ILLEGAL_STATE,
        f"Later changes depend on the {change['kind']} {change['id']}: nothing was undone.",
        details={"transaction_id": transaction_id, "entity_type": change["kind"], "entity_id": change["id"], **details},
        suggested_fix="Undo the later changes first, or correct the fact instead.",
    )
