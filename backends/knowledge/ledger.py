"""Applies changes and records them in the history, in one commit. All writes of the backend use `record`."""

import json
from typing import Any, Final

from sqlalchemy import bindparam, insert, select, update

from backends.knowledge.row_mapping import MAPPERS
from backends.knowledge.tables import touches, transactions
from backends.knowledge.unit_of_work import Change, Op, RecordedTransaction, UnitOfWork
from backends.knowledge.uris import EntityType
from gateway.contract import Json
from gateway.errors import Fault, Kind

_INSERT_TRANSACTION: Final = insert(transactions)
_INSERT_TOUCHES: Final = insert(touches)
_INSERT: Final = {kind: insert(mapper.table) for kind, mapper in MAPPERS.items()}
_SELECT: Final = {
    kind: select(mapper.table).where(mapper.table.c.id == bindparam("this")) for kind, mapper in MAPPERS.items()
}
_UPDATE: Final = {
    kind: update(mapper.table).where(mapper.table.c.id == bindparam("this")) for kind, mapper in MAPPERS.items()
}


async def find(unit: UnitOfWork, kind: EntityType, id_: str) -> Json | None:
    """Return the active item with this id, or None."""
    row = await _row(unit, kind, id_)
    return MAPPERS[kind].from_row(row) if row is not None and row.deleted_at is None else None


async def get(unit: UnitOfWork, kind: EntityType, id_: str, expected_version: int | None = None) -> Json:
    """Return the active item. Raises `Fault(NOT_FOUND)`, or `Fault(ILLEGAL_STATE)` for an unexpected version."""
    found = await find(unit, kind, id_)
    if found is None:
        raise Fault(Kind.NOT_FOUND, f"There is no {kind} {id_[:64]!r}.", details={"id": id_[:64], "entity_type": kind})
    if expected_version is not None and found["version"] != expected_version:
        raise Fault(
            Kind.ILLEGAL_STATE,
            f"The {kind} has changed: it is at version {found['version']}, not {expected_version}.",
            details={"id": id_, "version": found["version"], "expected_version": expected_version},
            suggested_fix="Read it again and repeat the change on the current version.",
        )
    return found


async def record(
    unit: UnitOfWork,
    op: Op,
    changes: list[Change],
    *,
    actor: str | None = None,
    entity_id: str | None = None,
    reverts: str | None = None,
) -> RecordedTransaction:
    """Apply the changes in order and record them as one transaction.

    `entity_id` is the id under which the transaction is listed; by default that of the first change.
    """
    for change in changes:
        await _apply(unit, change)
    transaction = RecordedTransaction(unit.new_id(), op, tuple(changes))
    main = next((change for change in changes if change.id == entity_id), changes[0])
    row: Json = {
        "id": transaction.id,
        "op": op,
        "entity_type": main.kind,
        "entity_id": main.id,
        "actor": actor or unit.actor,
        "changes": json.dumps([_change_to_json(change) for change in changes], ensure_ascii=False),
        "reverts": reverts,
        "reverted_by": None,
        "recorded_at": unit.now,
    }
    unit.add_stored_bytes(op, len(row["changes"].encode()))
    await unit.connection.execute(_INSERT_TRANSACTION, row)
    if other_ids := {change.id for change in changes} - {main.id}:
        touch_rows = [{"entity_id": id_, "transaction_id": transaction.id} for id_ in other_ids]
        await unit.connection.execute(_INSERT_TOUCHES, touch_rows)
    unit.recorded.append(transaction)
    return transaction


async def replay(unit: UnitOfWork, transaction: Json, changes: list[Change]) -> None:
    """Apply the changes of a transaction of another memory and record it as it was."""
    row = {**transaction, "changes": json.dumps([_change_to_json(change) for change in changes], ensure_ascii=False)}
    row.pop("type", None)
    op: Op = transaction["op"]
    unit.add_stored_bytes(op, len(row["changes"].encode()))
    for change in changes:
        unit.observe_id(change.id)
        await _apply(unit, change)
    unit.observe_id(row["id"])
    await unit.connection.execute(_INSERT_TRANSACTION, row)
    if other_ids := {change.id for change in changes} - {row["entity_id"]}:
        touch_rows = [{"entity_id": id_, "transaction_id": row["id"]} for id_ in other_ids]
        await unit.connection.execute(_INSERT_TOUCHES, touch_rows)
    unit.recorded.append(RecordedTransaction(row["id"], op, tuple(changes)))


async def exists(unit: UnitOfWork, kind: EntityType, id_: str) -> bool:
    """Whether there is an item with this id, deleted or not."""
    return await _row(unit, kind, id_) is not None


def _change_to_json(change: Change) -> Json:
    return {"kind": change.kind, "id": change.id, "before": change.before, "after": change.after}


async def _apply(unit: UnitOfWork, change: Change) -> None:
    mapper = MAPPERS[change.kind]
    # Only a row that never existed gets version 1; restoring a deleted row increments its version.
    is_new = change.before is None and change.after is not None and change.after["version"] == 1
    row = None if is_new else await _row(unit, change.kind, change.id)
    if row is None:
        assert change.after is not None
        values = {**mapper.to_row(change.after), "number": unit.new_number(), "deleted_at": None}
        await unit.connection.execute(_INSERT[change.kind], values)
    else:
        values = _values(unit, change, row)
        await unit.connection.execute(_UPDATE[change.kind], {**values, "this": change.id})
    unit.row_cache.pop((change.kind, change.id), None)
    await mapper.sync_related(unit, change.id, change.before, change.after)


def _values(unit: UnitOfWork, change: Change, row: Any) -> Json:
    if change.after is None:
        return {"deleted_at": unit.now, "version": row.version + 1}
    return {**MAPPERS[change.kind].to_row(change.after), "deleted_at": None}


async def _row(unit: UnitOfWork, kind: EntityType, id_: str) -> Any:
    if (kind, id_) not in unit.row_cache:
        unit.row_cache[kind, id_] = (await unit.connection.execute(_SELECT[kind], {"this": id_})).first()
    return unit.row_cache[kind, id_]


async def get_version(unit: UnitOfWork, kind: EntityType, id_: str) -> int:
    """Return the version of an item, deleted or not. Versions never decrease."""
    return (await _row(unit, kind, id_)).version
