"""Ingestion of long texts: stores new chunks as entries and skips known ones. Large texts run in the background."""

import asyncio
import json
import logging
from typing import Any, Final

from sqlalchemy import func, insert, select, update

from backends.knowledge import entries, ledger, provenance
from backends.knowledge.call_context import CallContext
from backends.knowledge.chunks import split, title_of
from backends.knowledge.tables import ingestions
from backends.knowledge.unit_of_work import Change, UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.knowledge")

MAX_BYTES: Final = 900_000
_MAX_INLINE_CHARACTERS: Final = 5000
_BATCH: Final = 20
_METADATA_FIELDS: Final = ("topic", "tags", "source", "actor", "confidence", "valid_from", "valid_to")
_STATUS_FIELDS: Final = (
    "id",
    "status",
    "total",
    "processed",
    "stored",
    "skipped",
    "failure",
    "recorded_at",
    "updated_at",
)
_UNFINISHED: Final = ("pending", "processing")
MAX_CONCURRENT: Final = 8
_COUNT: Final = select(func.count()).select_from(ingestions).where(ingestions.c.status.in_(_UNFINISHED))


async def ingest(context: CallContext, arguments: Json) -> Json:
    """Start an ingestion. Returns the task, completed if the text is short or the caller waits."""
    content = arguments["content"]
    provenance.check_not_blank({"content": content})
    if (size := len(content.encode())) > MAX_BYTES:
        details = {"payload_bytes": size, "max_bytes": MAX_BYTES}
        raise Fault(Kind.TOO_LARGE, "The text exceeds the size limit of one ingestion.", details=details)
    chunks = split(content)
    inline = len(content) <= _MAX_INLINE_CHARACTERS and len(chunks) <= _BATCH
    async with context.open() as unit:
        await unit.begin_writing()
        if not inline:
            await _check_concurrency(unit)
        task_id = await _create(unit, chunks, {name: arguments[name] for name in _METADATA_FIELDS if name in arguments})
        if inline:
            await _process_batch(unit, task_id)
        task = _to_json(await _row(unit, task_id))
    if arguments.get("wait") and not inline:
        return await _run_with_progress(context, task)
    if not inline:
        context.service.host.spawn(_run_in_background(context, task_id))
    return task


async def find(unit: UnitOfWork, task_id: str) -> Json | None:
    row = await _row(unit, task_id)
    return _to_json(row) if row is not None else None


async def status(unit: UnitOfWork, task_id: str) -> Json:
    found = await find(unit, task_id)
    if found is None:
        raise Fault(Kind.NOT_FOUND, f"There is no ingestion {task_id[:64]!r}.", details={"task_id": task_id[:64]})
    return found


async def resume(context: CallContext) -> None:
    """Continue the ingestions that an earlier gateway process left unfinished."""
    async with context.open() as unit:
        query = select(ingestions.c.id).where(ingestions.c.status.in_(_UNFINISHED))
        unfinished = list((await unit.connection.execute(query)).scalars())
    for task_id in unfinished:
        context.service.host.spawn(_run_in_background(context, task_id))


# ---- processing ---------------------------------------------------------------------------------------------------


async def _run_in_background(context: CallContext, task_id: str) -> None:
    try:
        while await context.service.host.is_authorized(context.caller):
            if await _run_batch(context, task_id) is None:
                return
        await _fail(context, task_id, "The caller that started this ingestion is no longer authorized.")
    except Fault as fault:
        await _fail(context, task_id, fault.message)
    except Exception:
        # A background task has no caller to raise to.
        log.exception("knowledge: ingestion %s failed; its remaining chunks are discarded", task_id)
        await _fail(context, task_id, "Internal error.")


async def _run_with_progress(context: CallContext, task: Json) -> Json:
    """Process the text within the call and report progress. If the call is cancelled, continue in the background."""
    task_id: str = task["task_id"]
    try:
        while (progress := await _run_batch(context, task_id)) is not None:
            await context.ctx.session.report_progress(
                progress["processed"], progress["total"], f"{progress['stored']} stored"
            )
    except Fault as fault:
        await _fail(context, task_id, fault.message)
        raise
    except asyncio.CancelledError:
        context.service.host.spawn(_run_in_background(context, task_id))
        raise
    async with context.open() as unit:
        return await status(unit, task_id)


async def _run_batch(context: CallContext, task_id: str) -> Json | None:
    """Process one batch in its own transaction. Returns the task, or None when it is already finished."""
    async with context.open() as unit:
        await unit.begin_writing()
        row = await _row(unit, task_id)
        if row.status not in _UNFINISHED:
            return None
        await _process_batch(unit, task_id)
        return _to_json(await _row(unit, task_id))


async def _process_batch(unit: UnitOfWork, task_id: str) -> None:
    """Store the next batch and its progress in one commit, so that a restart continues after it."""
    row = await _row(unit, task_id)
    metadata, processed = json.loads(row.about), row.processed
    batch: list[str] = json.loads(row.chunks)[processed : processed + _BATCH]
    known = await entries.find_known_contents(unit, batch)
    fresh = [chunk for chunk in dict.fromkeys(batch) if chunk not in known]
    if fresh:
        new_entries = [entries.new_entry(unit, _entry(metadata, chunk)) for chunk in fresh]
        changes = [Change("entry", entry["id"], None, entry) for entry in new_entries]
        await ledger.record(unit, "CREATE", changes, actor=metadata["actor"])
    processed += len(batch)
    values: Json = {"processed": processed, "stored": row.stored + len(fresh), "updated_at": unit.now}
    values["skipped"] = row.skipped + len(batch) - len(fresh)
    values["status"] = "completed" if processed >= row.total else "processing"
    if processed >= row.total:
        values["chunks"] = "[]"
    await unit.connection.execute(update(ingestions).where(ingestions.c.id == task_id).values(values))


def _entry(metadata: Json, chunk: str) -> Json:
    tags = list(dict.fromkeys([*(metadata.get("tags") or []), "ingested"]))
    return {**metadata, "topic": metadata.get("topic") or title_of(chunk), "content": chunk, "tags": tags}


async def _fail(context: CallContext, task_id: str, reason: str) -> None:
    async with context.open() as unit:
        values = {"status": "failed", "failure": reason, "chunks": "[]", "updated_at": unit.now}
        unfinished = ingestions.c.status.in_(_UNFINISHED)
        await unit.connection.execute(update(ingestions).where(ingestions.c.id == task_id, unfinished).values(values))


# ---- task rows ----------------------------------------------------------------------------------------------------


async def _check_concurrency(unit: UnitOfWork) -> None:
    """Reject a new ingestion while the tenant has too many unfinished ones; they run one after another."""
    if (await unit.connection.execute(_COUNT)).scalar_one() >= MAX_CONCURRENT:
        raise Fault(
            Kind.RATE_LIMITED,
            f"{MAX_CONCURRENT} ingestions are already in progress.",
            details={"most": MAX_CONCURRENT},
            retry_after=5.0,
            suggested_fix="Poll ingestion_status until one is completed, then retry.",
        )


async def _create(unit: UnitOfWork, chunks: list[str], metadata: Json) -> str:
    metadata = {**metadata, "actor": metadata.get("actor") or unit.actor}
    provenance.create(unit, metadata)  # validate now, before the work moves to the background
    row: Json = {
        "id": unit.new_id(),
        "status": "pending",
        "chunks": json.dumps(chunks, ensure_ascii=False),
        "about": json.dumps(metadata, ensure_ascii=False),
        "total": len(chunks),
        "processed": 0,
        "stored": 0,
        "skipped": 0,
        "failure": None,
        "recorded_at": unit.now,
        "updated_at": unit.now,
    }
    await unit.connection.execute(insert(ingestions), row)
    return row["id"]


async def _row(unit: UnitOfWork, task_id: str) -> Any:
    return (await unit.connection.execute(select(ingestions).where(ingestions.c.id == task_id))).first()


def _to_json(row: Any) -> Json:
    fields = {name: getattr(row, name) for name in _STATUS_FIELDS}
    return {"task_id": fields.pop("id"), **fields}
