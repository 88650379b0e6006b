"""Ingestion of long texts: stores new chunks as entries and skips known ones. Large texts run in the background."""

import asyncio
import json
import logging
from dataclasses import astuple
from typing import Any, Final

from sqlalchemy import func, insert, select, update

from backends.knowledge import entries, fact_extraction, ledger, provenance
from backends.knowledge.call_context import CallContext
from backends.knowledge.chunks import Chunk, split, title_of
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
    "facts",
    "contradictions",
    "failure",
    "recorded_at",
    "updated_at",
)
_MAX_KEPT_IDS: Final = fact_extraction.MAX_REQUESTS * 6
_UNFINISHED: Final = ("pending", "processing")
MAX_CONCURRENT: Final = 8
_COUNT: Final = select(func.count()).select_from(ingestions).where(ingestions.c.status.in_(_UNFINISHED))


async def ingest(context: CallContext, arguments: Json) -> Json:
    """Create an ingestion. Returns the task, completed if the text is short. `finish` continues it."""
    content = arguments["content"]
    provenance.check_not_blank({"content": content})
    if (size := len(content.encode())) > MAX_BYTES:
        details = {"payload_bytes": size, "max_bytes": MAX_BYTES}
        raise Fault(Kind.TOO_LARGE, "The text exceeds the size limit of one ingestion.", details=details)
    chunks = split(content)
    inline = context.is_preview or (len(content) <= _MAX_INLINE_CHARACTERS and len(chunks) <= _BATCH)
    if arguments.get("extract_facts"):
        fact_extraction.check_sampling(context)
    metadata = {name: arguments[name] for name in _METADATA_FIELDS if name in arguments}
    async with context.open() as unit:
        await unit.begin_writing()
        if not inline:
            await _check_concurrency(unit)
        task_id = await _create(unit, chunks, metadata)
        while inline and (row := await _row(unit, task_id)).status in _UNFINISHED:
            await _process_batch(unit, row.id)
        return _to_json(await _row(unit, task_id))


async def finish(context: CallContext, arguments: Json, task: Json) -> Json:
    """Continue a committed ingestion: in the background, or until its end if the caller waits."""
    extracts = arguments.get("extract_facts", False)
    if task["status"] in _UNFINISHED:
        if not arguments.get("wait") and not extracts:
            context.service.host.spawn(_run_in_background(context, task["task_id"]))
            return task
        task = await _run_with_progress(context, task)
    if not extracts or task["status"] != "completed":
        return task
    async with context.open() as unit:
        row = await _row(unit, task["task_id"])
    if row.facts or row.contradictions:  # a repeated call with the same idempotency key
        return task
    outcome = await fact_extraction.extract(context, json.loads(row.about).get("entry_ids", []))
    async with context.open() as unit:
        values = {name: outcome[name] for name in ("facts", "contradictions")}
        await unit.connection.execute(update(ingestions).where(ingestions.c.id == row.id).values(values))
        return {**await status(unit, row.id), "conflict_ids": outcome["conflict_ids"]}


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
    batch = [_chunk(each) for each in json.loads(row.chunks)[processed : processed + _BATCH]]
    known = await entries.find_known_contents(unit, [chunk.text for chunk in batch])
    fresh = [chunk for text, chunk in {chunk.text: chunk for chunk in reversed(batch)}.items() if text not in known]
    fresh.reverse()
    if fresh:
        new_entries = [entries.new_entry(unit, _entry(metadata, chunk)) for chunk in fresh]
        metadata["entry_ids"] = [*metadata.get("entry_ids", []), *(entry["id"] for entry in new_entries)][
            -_MAX_KEPT_IDS:
        ]
        changes = [Change("entry", entry["id"], None, entry) for entry in new_entries]
        await ledger.record(unit, "CREATE", changes, actor=metadata["actor"])
    processed += len(batch)
    values: Json = {"processed": processed, "stored": row.stored + len(fresh), "updated_at": unit.now}
    values["about"] = json.dumps(metadata, ensure_ascii=False)
    values["skipped"] = row.skipped + len(batch) - len(fresh)
    values["status"] = "completed" if processed >= row.total else "processing"
    if processed >= row.total:
        values["chunks"] = "[]"
    await unit.connection.execute(update(ingestions).where(ingestions.c.id == task_id).values(values))


def _chunk(value: Any) -> Chunk:
    """Return a stored chunk. Ingestions from before offsets were kept stored only the text."""
    return Chunk(value, 0, len(value)) if isinstance(value, str) else Chunk(*value)


def _entry(metadata: Json, chunk: Chunk) -> Json:
    tags = list(dict.fromkeys([*(metadata.get("tags") or []), "ingested"]))
    place = {"source_start": chunk.start, "source_end": chunk.end}
    return {
        **metadata,
        **place,
        "topic": metadata.get("topic") or title_of(chunk.text),
        "content": chunk.text,
        "tags": tags,
    }


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


async def _create(unit: UnitOfWork, chunks: list[Chunk], metadata: Json) -> str:
    metadata = {**metadata, "actor": metadata.get("actor") or unit.actor}
    provenance.create(unit, metadata)  # validate now, before the work moves to the background
    row: Json = {
        "id": unit.new_id(),
        "status": "pending",
        "chunks": json.dumps([astuple(chunk) for chunk in chunks], ensure_ascii=False),
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
