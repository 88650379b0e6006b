"""Undo: the newest transactions are reverted, newest first, all or none."""

import json
from typing import Any

from sqlalchemy import select, update

from backends.knowledge import ledger
from backends.knowledge.book import Book, Change
from backends.knowledge.history import touching
from backends.knowledge.keys import fold
from backends.knowledge.names import same
from backends.knowledge.tables import transactions, triples
from backends.knowledge.triples import overlaps
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def undo(book: Book, arguments: Json) -> Json:
    """The ids of what was reverted and of the transactions that did it."""
    await book.begin_writing()
    reverted: list[str] = []
    for row in await _newest(book, arguments.get("count", 1), arguments.get("actor")):
        await _revert(book, row)
        reverted.append(row.id)
    return {"reverted": reverted, "revert_ids": [written.id for written in book.written]}


async def _newest(book: Book, count: int, actor: str | None) -> list[Any]:
    statement = select(transactions).where(transactions.c.op != "REVERT", transactions.c.reverted_by.is_(None))
    if actor is not None:
        statement = statement.where(transactions.c.actor == actor)
    found = await book.connection.execute(statement.order_by(transactions.c.id.desc()).limit(count))
    return list(found)


async def _revert(book: Book, row: Any) -> None:
    changes: list[Change] = []
    for made in reversed(json.loads(row.changes)):
        await _check_free(book, row.id, made)
        changes.append(await _inverse(book, made))
    written = await ledger.record(book, "REVERT", changes, about=row.entity_id, reverts=row.id)
    marked = update(transactions).where(transactions.c.id == row.id).values(reverted_by=written.id)
    await book.connection.execute(marked)


async def _inverse(book: Book, made: Json) -> Change:
    current = await ledger.find(book, made["kind"], made["id"])
    before = made["before"]
    if before is not None:
        # Versions go on upwards, so that whoever read the undone state notices.
        before = {**before, "version": await ledger.version_of(book, made["kind"], made["id"]) + 1}
    return Change(made["kind"], made["id"], current, before)


async def _check_free(book: Book, transaction_id: str, made: Json) -> None:
    """Raises `Fault(ILLEGAL_STATE)` when something that came later would lose what it stands on."""
    statement = (
        select(transactions.c.id)
        .where(
            transactions.c.id.in_(touching(made["id"])),
            transactions.c.id > transaction_id,
            transactions.c.op != "REVERT",
            transactions.c.reverted_by.is_(None),
        )
        .order_by(transactions.c.id.desc())
    )
    blocking = list((await book.connection.execute(statement.limit(10))).scalars())
    if blocking:
        raise _blocked(transaction_id, made, {"blocked_by": blocking})
    if made["kind"] == "triple" and made["before"] is not None:
        await _check_unrivalled(book, transaction_id, made)


async def _check_unrivalled(book: Book, transaction_id: str, made: Json) -> None:
    """A fact that was stated once this one was gone must not find it back beside itself."""
    gone = made["before"]
    if gone["multi"]:
        return
    statement = select(triples.c.id).where(
        triples.c.subject_key.in_(await same(book, gone["subject"])),
        triples.c.predicate_key == fold(gone["predicate"]),
        triples.c.deleted_at.is_(None),
        triples.c.multi == 0,
        triples.c.id > transaction_id,
        overlaps(gone),
    )
    later = list((await book.connection.execute(statement.limit(10))).scalars())
    if later:
        raise _blocked(transaction_id, made, {"contradicted_by": later})


def _blocked(transaction_id: str, made: Json, why: Json) -> Fault:
    return Fault(
        Kind.ILLEGAL_STATE,
        f"Later changes depend on the {made['kind']} {made['id']}: nothing was undone.",
        details={"transaction_id": transaction_id, "entity_type": made["kind"], "entity_id": made["id"], **why},
        suggested_fix="Undo the later changes first, or correct the fact instead.",
    )
