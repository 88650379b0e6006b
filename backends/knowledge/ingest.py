"""Taking in long texts: chunk by chunk, each known one skipped, in the background when there are many."""

import asyncio
import json
import logging
from typing import Any, Final

from sqlalchemy import func, insert, select, update

from backends.knowledge import entries, ledger, provenance
from backends.knowledge.call_context import Visit
from backends.knowledge.chunks import split, title_of
from backends.knowledge.tables import ingestions
from backends.knowledge.unit_of_work import Book, Change
from gateway.contract import Json
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.knowledge")

MAX_BYTES: Final = 900_000
_AT_ONCE_CHARACTERS: Final = 5000
_BATCH: Final = 20
_ABOUT: Final = ("topic", "tags", "source", "actor", "confidence", "valid_from", "valid_to")
_SHOWN: Final = ("id", "status", "total", "processed", "stored", "skipped", "failure", "recorded_at", "updated_at")
_UNFINISHED: Final = ("pending", "processing")
MOST_AT_A_TIME: Final = 8
_COUNT: Final = select(func.count()).select_from(ingestions).where(ingestions.c.status.in_(_UNFINISHED))


async def ingest(visit: Visit, arguments: Json) -> Json:
    """The task: completed when the text is short or the caller waits, else under way."""
    content = arguments["content"]
    provenance.check_filled({"content": content})
    if (size := len(content.encode())) > MAX_BYTES:
        details = {"payload_bytes": size, "max_bytes": MAX_BYTES}
        raise Fault(Kind.TOO_LARGE, "The text is too long to take in at once.", details=details)
    chunks = split(content)
    at_once = len(content) <= _AT_ONCE_CHARACTERS and len(chunks) <= _BATCH
    async with visit.open() as book:
        await book.begin_writing()
        if not at_once:
            await _check_room(book)
        task_id = await _create(book, chunks, {name: arguments[name] for name in _ABOUT if name in arguments})
        if at_once:
            await _advance(book, task_id)
        task = _shown(await _row(book, task_id))
    if arguments.get("wait") and not at_once:
        return await _work_and_tell(visit, task)
    if not at_once:
        visit.library.home.spawn(_work(visit, task_id))
    return task


async def find(book: Book, task_id: str) -> Json | None:
    row = await _row(book, task_id)
    return _shown(row) if row is not None else None


async def status(book: Book, task_id: str) -> Json:
    found = await find(book, task_id)
    if found is None:
        raise Fault(Kind.NOT_FOUND, f"There is no ingestion {task_id[:64]!r}.", details={"task_id": task_id[:64]})
    return found


async def resume(visit: Visit) -> None:
    """Go on with what an earlier process of this gateway left unfinished."""
    async with visit.open() as book:
        left = select(ingestions.c.id).where(ingestions.c.status.in_(_UNFINISHED))
        unfinished = list((await book.connection.execute(left)).scalars())
    for task_id in unfinished:
        visit.library.home.spawn(_work(visit, task_id))


# ---- the work -----------------------------------------------------------------------------------------------------


async def _work(visit: Visit, task_id: str) -> None:
    try:
        while await visit.library.home.is_authorized(visit.caller):
            if await _step(visit, task_id) is None:
                return
        await _fail(visit, task_id, "Whoever started it may no longer do so.")
    except Fault as fault:
        await _fail(visit, task_id, fault.message)
    except Exception:
        # A background task has nobody to raise to.
        log.exception("ingestion %s failed", task_id)
        await _fail(visit, task_id, "It failed.")


async def _work_and_tell(visit: Visit, task: Json) -> Json:
    """In the call itself, with progress; if the caller leaves, it goes on without."""
    task_id: str = task["task_id"]
    try:
        while (after := await _step(visit, task_id)) is not None:
            await visit.ctx.session.report_progress(after["processed"], after["total"], f"{after['stored']} stored")
    except Fault as fault:
        await _fail(visit, task_id, fault.message)
        raise
    except asyncio.CancelledError:
        visit.library.home.spawn(_work(visit, task_id))
        raise
    async with visit.open() as book:
        return await status(book, task_id)


async def _step(visit: Visit, task_id: str) -> Json | None:
    """One batch; None when there is nothing left to do."""
    async with visit.open() as book:
        await book.begin_writing()
        row = await _row(book, task_id)
        if row.status not in _UNFINISHED:
            return None
        await _advance(book, task_id)
        return _shown(await _row(book, task_id))


async def _advance(book: Book, task_id: str) -> None:
    """The next batch and the progress it makes, in one commit: whoever comes next goes on after it."""
    row = await _row(book, task_id)
    about, done = json.loads(row.about), row.processed
    batch: list[str] = json.loads(row.chunks)[done : done + _BATCH]
    known = await entries.known_contents(book, batch)
    fresh = [chunk for chunk in dict.fromkeys(batch) if chunk not in known]
    if fresh:
        made = [entries.new_entry(book, _entry(about, chunk)) for chunk in fresh]
        changes = [Change("entry", entry["id"], None, entry) for entry in made]
        await ledger.record(book, "CREATE", changes, actor=about["actor"])
    done += len(batch)
    values: Json = {"processed": done, "stored": row.stored + len(fresh), "updated_at": book.now}
    values["skipped"] = row.skipped + len(batch) - len(fresh)
    values["status"] = "completed" if done >= row.total else "processing"
    if done >= row.total:
        values["chunks"] = "[]"
    await book.connection.execute(update(ingestions).where(ingestions.c.id == task_id).values(values))


def _entry(about: Json, chunk: str) -> Json:
    tags = list(dict.fromkeys([*(about.get("tags") or []), "ingested"]))
    return {**about, "topic": about.get("topic") or title_of(chunk), "content": chunk, "tags": tags}


async def _fail(visit: Visit, task_id: str, why: str) -> None:
    async with visit.open() as book:
        values = {"status": "failed", "failure": why, "chunks": "[]", "updated_at": book.now}
        unfinished = ingestions.c.status.in_(_UNFINISHED)
        await book.connection.execute(update(ingestions).where(ingestions.c.id == task_id, unfinished).values(values))


# ---- its rows -----------------------------------------------------------------------------------------------------


async def _check_room(book: Book) -> None:
    """A tenant's texts wait for each other; so that they do not pile up, there are few at a time."""
    if (await book.connection.execute(_COUNT)).scalar_one() >= MOST_AT_A_TIME:
        raise Fault(
            Kind.RATE_LIMITED,
            f"{MOST_AT_A_TIME} texts are being taken in already.",
            details={"most": MOST_AT_A_TIME},
            retry_after=5.0,
            suggested_fix="Ask ingestion_status until one is completed.",
        )


async def _create(book: Book, chunks: list[str], about: Json) -> str:
    about = {**about, "actor": about.get("actor") or book.actor}
    provenance.of(book, about)  # a bad validity is refused now, not in the background
    row: Json = {
        "id": book.new_id(),
        "status": "pending",
        "chunks": json.dumps(chunks, ensure_ascii=False),
        "about": json.dumps(about, ensure_ascii=False),
        "total": len(chunks),
        "processed": 0,
        "stored": 0,
        "skipped": 0,
        "failure": None,
        "recorded_at": book.now,
        "updated_at": book.now,
    }
    await book.connection.execute(insert(ingestions), row)
    return row["id"]


async def _row(book: Book, task_id: str) -> Any:
    return (await book.connection.execute(select(ingestions).where(ingestions.c.id == task_id))).first()


def _shown(row: Any) -> Json:
    shown = {name: getattr(row, name) for name in _SHOWN}
    return {"task_id": shown.pop("id"), **shown}
