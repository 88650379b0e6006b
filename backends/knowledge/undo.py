"""Undo: the newest transactions are reverted, newest first, all or none."""

import json
from typing import Any, Final

from sqlalchemy import Integer, bindparam, select, update

from backends.knowledge import ledger
from backends.knowledge.entity_names import same
from backends.knowledge.history import TOUCHING
from backends.knowledge.tables import transactions, triples
from backends.knowledge.text_keys import fold
from backends.knowledge.triples import OVERLAPS, validity
from backends.knowledge.unit_of_work import Book, Change
from gateway.contract import Json
from gateway.errors import Fault, Kind

_newest_first = transactions.c.id.desc()
_standing = (transactions.c.op != "REVERT", transactions.c.reverted_by.is_(None))
_NEWEST: Final = select(transactions).where(*_standing).order_by(_newest_first).limit(bindparam("count", type_=Integer))
_NEWEST_OF: Final = _NEWEST.where(transactions.c.actor == bindparam("actor"))
_MARK: Final = update(transactions).where(transactions.c.id == bindparam("reverted"))
_LATER: Final = (
    select(transactions.c.id)
    .where(transactions.c.id.in_(TOUCHING), transactions.c.id > bindparam("transaction_id"), *_standing)
    .order_by(_newest_first)
    .limit(10)
)
_RIVALS: Final = (
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


async def undo(book: Book, arguments: Json) -> Json:
    """The ids of what was reverted and of the transactions that did it."""
    await book.begin_writing()
    reverted: list[str] = []
    for row in await _newest(book, arguments.get("count", 1), arguments.get("actor")):
        await _revert(book, row)
        reverted.append(row.id)
    return {"reverted": reverted, "revert_ids": [written.id for written in book.written]}


async def _newest(book: Book, count: int, actor: str | None) -> list[Any]:
    found = await book.connection.execute(_NEWEST if actor is None else _NEWEST_OF, {"count": count, "actor": actor})
    return list(found)


async def _revert(book: Book, row: Any) -> None:
    changes: list[Change] = []
    for made in reversed(json.loads(row.changes)):
        await _check_free(book, row.id, made)
        changes.append(await _inverse(book, made))
    written = await ledger.record(book, "REVERT", changes, about=row.entity_id, reverts=row.id)
    await book.connection.execute(_MARK, {"reverted": row.id, "reverted_by": written.id})


async def _inverse(book: Book, made: Json) -> Change:
    current = await ledger.find(book, made["kind"], made["id"])
    before = made["before"]
    if before is not None:
        # Versions go on upwards, so that whoever read the undone state notices.
        before = {**before, "version": await ledger.version_of(book, made["kind"], made["id"]) + 1}
    return Change(made["kind"], made["id"], current, before)


async def _check_free(book: Book, transaction_id: str, made: Json) -> None:
    """Raises `Fault(ILLEGAL_STATE)` when something that came later would lose what it stands on."""
    asked = {"entity_id": made["id"], "transaction_id": transaction_id}
    blocking = list((await book.connection.execute(_LATER, asked)).scalars())
    if blocking:
        raise _blocked(transaction_id, made, {"blocked_by": blocking})
    if made["kind"] == "triple" and made["before"] is not None:
        await _check_unrivalled(book, transaction_id, made)


async def _check_unrivalled(book: Book, transaction_id: str, made: Json) -> None:
    """A fact that was stated once this one was gone must not find it back beside itself."""
    gone = made["before"]
    if gone["multi"]:
        return
    asked: Json = {
        "subjects": list(await same(book, gone["subject"])),
        "predicate": fold(gone["predicate"]),
        "transaction_id": transaction_id,
        **validity(gone),
    }
    later = list((await book.connection.execute(_RIVALS, asked)).scalars())
    if later:
        raise _blocked(transaction_id, made, {"contradicted_by": later})


def _blocked(transaction_id: str, made: Json, why: Json) -> Fault:
    return Fault(
        Kind.ILLEGAL_STATE,
        f"Later changes depend on the {made['kind']} {made['id']}: nothing was undone.",
        details={"transaction_id": transaction_id, "entity_type": made["kind"], "entity_id": made["id"], **why},
        suggested_fix="Undo the later changes first, or correct the fact instead.",
    )
