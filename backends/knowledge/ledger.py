"""Every change of the memory goes through here: rows, index and transaction in one commit."""

import json
from typing import Any, Final

from sqlalchemy import bindparam, insert, select, update

from backends.knowledge.row_mapping import SHELVES
from backends.knowledge.tables import touches, transactions
from backends.knowledge.unit_of_work import Book, Change, EntityType, Op, Written
from gateway.contract import Json
from gateway.errors import Fault, Kind

_NOTE: Final = insert(transactions)
_TOUCH: Final = insert(touches)
_ADD: Final = {kind: insert(shelf.table) for kind, shelf in SHELVES.items()}
_FIND: Final = {
    kind: select(shelf.table).where(shelf.table.c.id == bindparam("this")) for kind, shelf in SHELVES.items()
}
_CHANGE: Final = {
    kind: update(shelf.table).where(shelf.table.c.id == bindparam("this")) for kind, shelf in SHELVES.items()
}


async def find(book: Book, kind: EntityType, id_: str) -> Json | None:
    """The living thing of that id."""
    row = await _row(book, kind, id_)
    return SHELVES[kind].from_row(row) if row is not None and row.deleted_at is None else None


async def get(book: Book, kind: EntityType, id_: str, expected_version: int | None = None) -> Json:
    """The same, or `Fault(NOT_FOUND)`; `Fault(ILLEGAL_STATE)` when it is not the version that was expected."""
    found = await find(book, kind, id_)
    if found is None:
        raise Fault(Kind.NOT_FOUND, f"There is no {kind} {id_[:64]!r}.", details={"id": id_[:64], "entity_type": kind})
    if expected_version is not None and found["version"] != expected_version:
        raise Fault(
            Kind.ILLEGAL_STATE,
            f"The {kind} has changed: it is at version {found['version']}, not {expected_version}.",
            details={"id": id_, "version": found["version"], "expected_version": expected_version},
            suggested_fix="Read it again and repeat the change on what it says now.",
        )
    return found


async def record(
    book: Book,
    op: Op,
    changes: list[Change],
    *,
    actor: str | None = None,
    about: str | None = None,
    reverts: str | None = None,
) -> Written:
    """Carry the changes out in order, and write down that they were.

    `about` is the id that the transaction is listed under; by default that of the first change.
    """
    for change in changes:
        await _apply(book, change)
    written = Written(book.new_id(), op, tuple(changes))
    main = next((change for change in changes if change.id == about), changes[0])
    row: Json = {
        "id": written.id,
        "op": op,
        "entity_type": main.kind,
        "entity_id": main.id,
        "actor": actor or book.actor,
        "changes": json.dumps([_written_down(change) for change in changes], ensure_ascii=False),
        "reverts": reverts,
        "reverted_by": None,
        "recorded_at": book.now,
    }
    book.count(op, len(row["changes"].encode()))
    await book.connection.execute(_NOTE, row)
    if beside := {change.id for change in changes} - {main.id}:
        touched = [{"entity_id": id_, "transaction_id": written.id} for id_ in beside]
        await book.connection.execute(_TOUCH, touched)
    book.written.append(written)
    return written


def _written_down(change: Change) -> Json:
    return {"kind": change.kind, "id": change.id, "before": change.before, "after": change.after}


async def _apply(book: Book, change: Change) -> None:
    shelf = SHELVES[change.kind]
    # Only what was never there has its first version to come.
    new = change.before is None and change.after is not None and change.after["version"] == 1
    row = None if new else await _row(book, change.kind, change.id)
    if row is None:
        assert change.after is not None
        values = {**shelf.to_row(change.after), "number": book.new_number(), "deleted_at": None}
        await book.connection.execute(_ADD[change.kind], values)
    else:
        values = _values(book, change, row)
        await book.connection.execute(_CHANGE[change.kind], {**values, "this": change.id})
    book.rows.pop((change.kind, change.id), None)
    await shelf.settle(book, change.id, change.before, change.after)


def _values(book: Book, change: Change, row: Any) -> Json:
    if change.after is None:
        return {"deleted_at": book.now, "version": row.version + 1}
    return {**SHELVES[change.kind].to_row(change.after), "deleted_at": None}


async def _row(book: Book, kind: EntityType, id_: str) -> Any:
    if (kind, id_) not in book.rows:
        book.rows[kind, id_] = (await book.connection.execute(_FIND[kind], {"this": id_})).first()
    return book.rows[kind, id_]


async def version_of(book: Book, kind: EntityType, id_: str) -> int:
    """Also of what is deleted: versions only ever go up."""
    return (await _row(book, kind, id_)).version
