"""Tool handlers: run the operation in a unit of work and summarize its outcome as text."""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Final

from backends.knowledge import conflicts, entities, entries, ledger, transfer, triples, uris
from backends.knowledge import history as history_log
from backends.knowledge import ingest as ingestion
from backends.knowledge import undo as undo_log
from backends.knowledge.call_context import CallContext
from backends.knowledge.search import graph_query, graph_walk
from backends.knowledge.search import query as entry_query
from backends.knowledge.tool_results import (
    ToolResult,
    entry_line,
    format_list,
    pluralize,
    transaction_line,
    triple_line,
    with_query,
)
from backends.knowledge.unit_of_work import Change
from gateway.contract import Json

_QUERY_FIELDS = ("topic", "content", "tags", "as_of", "limit", "cursor")
_GRAPH_QUERY_FIELDS = ("subject", "predicate", "object", "as_of", "limit", "cursor")


async def store(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        entry = await entries.store(unit, arguments)
    text = f"Stored entry {entry['id']}."
    if "duplicate_of" in entry:
        text = f"Known: the same entry is stored as {entry['id']}."
    elif "similar_to" in entry:
        text += f" Similar: {', '.join(each['id'] for each in entry['similar_to'])}."
    return ToolResult(text, uris.item_uri("entry", entry["id"]), entry)


async def update(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        entry = await entries.update(unit, arguments)
    text = f"Updated entry {entry['id']} to version {entry['version']}."
    return ToolResult(text, uris.item_uri("entry", entry["id"]), entry)


async def query(context: CallContext, arguments: Json) -> ToolResult:
    started = perf_counter()
    if entry_query.search_text(arguments) and arguments.get("cursor") is None:
        await context.service.prepare_search(context.caller)
    async with context.open() as unit:
        page = await entry_query.query(unit, arguments)
    data = {**page.as_json(), "retrieval_ms": round((perf_counter() - started) * 1000, 3)}
    text = entry_query.search_text(arguments)
    head = f"Found {pluralize(len(page.items), 'entry', 'entries')}" + (f' matching "{text}".' if text else ".")
    uri = with_query(uris.ENTRIES, {name: arguments.get(name) for name in _QUERY_FIELDS})
    return ToolResult(format_list(head, [*map(entry_line, page.items)], page.next_cursor), uri, data)


async def delete(context: CallContext, arguments: Json) -> ToolResult:
    kind = arguments.get("entity_type", "entry")
    async with context.open() as unit:
        await unit.begin_writing()
        before = await ledger.get(unit, kind, arguments["id"], arguments.get("expected_version"))
        await ledger.record(unit, "DELETE", [Change(kind, before["id"], before, None)], actor=arguments.get("actor"))
    data: Json = {"id": before["id"], "entity_type": kind, "deleted": True}
    return ToolResult(f"Deleted {kind} {before['id']}.", uris.item_uri(kind, before["id"]), data)


async def relate(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        found = await conflicts.relate(unit, arguments)
    if "conflict_id" in found:
        text = (
            f"Conflict detected: nothing was written. Known: {triple_line(found['existing'])}. "
            f"Settle it with resolve_conflict {found['conflict_id']}: {', '.join(found['candidate_resolutions'])}."
        )
        return ToolResult(text, f"{uris.CONFLICTS}/{found['conflict_id']}", found)
    return _triple_result("Created" if found["created"] else "Already known:", found)


async def upsert_triple(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        triple, created = await triples.upsert(unit, arguments)
    return _triple_result("Created" if created else "Set", {**triple, "created": created})


async def update_triple(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        return _triple_result("Updated", await triples.update(unit, arguments))


def _triple_result(verb: str, triple: Json) -> ToolResult:
    return ToolResult(f"{verb} triple {triple_line(triple)}.", uris.item_uri("triple", triple["id"]), triple)


async def resolve_conflict(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        outcome = await conflicts.resolve(unit, arguments)
    outcomes = {
        "replace": f"replaced {pluralize(len(outcome['replaced_ids']), 'triple', 'triples')}",
        "retain_both": "both are kept",
        "reject": "the new one is not kept",
    }
    text = f"Resolved conflict {outcome['conflict_id']}: {outcomes[outcome['strategy']]}."
    return ToolResult(text, f"{uris.CONFLICTS}/{outcome['conflict_id']}", outcome)


async def query_graph(context: CallContext, arguments: Json) -> ToolResult:
    if graph_walk.is_walk(arguments):
        return await _walk_graph(context, arguments)
    async with context.open() as unit:
        page = await graph_query.query_graph(unit, arguments)
    head = f"Found {pluralize(len(page.items), 'triple', 'triples')}."
    uri = with_query(uris.TRIPLES, {name: arguments.get(name) for name in _GRAPH_QUERY_FIELDS})
    text = format_list(head, [*map(triple_line, page.items)], page.next_cursor)
    return ToolResult(text, uri, page.as_json())


async def _walk_graph(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        data = await graph_walk.walk(unit, arguments)
    head = f"Found {pluralize(len(data['items']), 'triple', 'triples')}."
    head += " There are more: raise limit or name predicates." if data["truncated"] else ""
    lines = [f"{item['hops']}: {triple_line(item)}" for item in data["items"]]
    return ToolResult(format_list(head, lines), uris.TRIPLES, data)


async def undo(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        outcome = await undo_log.undo(unit, arguments)
    reverted = outcome["reverted"]
    head = f"Reverted {pluralize(len(reverted), 'transaction', 'transactions')}." if reverted else "Nothing to undo."
    return ToolResult(format_list(head, reverted), uris.TRANSACTIONS, outcome)


async def history(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        page = await history_log.history(unit, arguments)
    head = f"{pluralize(len(page.items), 'transaction', 'transactions')}."
    text = format_list(head, [*map(transaction_line, page.items)], page.next_cursor)
    return ToolResult(text, uris.TRANSACTIONS, page.as_json())


async def upsert_entity(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        entity = await entities.upsert(unit, arguments)
    text = f"{'Created' if entity['created'] else 'Known'} entity {_entity_line(entity)}."
    return ToolResult(text, uris.item_uri("entity", entity["id"]), entity)


async def merge_entities(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        entity = await entities.merge(unit, arguments)
    linked = entity["linked"]
    text = (
        f"{'Would merge' if entity['dry_run'] else 'Merged'} {entity['merged_id']} into {_entity_line(entity)}; "
        f"{pluralize(linked['entries'], 'entry', 'entries')} and "
        f"{pluralize(linked['triples'], 'triple', 'triples')} linked."
    )
    return ToolResult(text, uris.item_uri("entity", entity["id"]), entity)


def _entity_line(entity: Json) -> str:
    aliases = f" (also {', '.join(entity['aliases'])})" if entity["aliases"] else ""
    return f"{entity['id']} {entity['name']}{aliases}"


async def ingest(context: CallContext, arguments: Json) -> ToolResult:
    return _task_result(await ingestion.ingest(context, arguments))


async def finish_ingest(context: CallContext, arguments: Json, result: ToolResult) -> ToolResult:
    return _task_result(await ingestion.finish(context, arguments, result.data))


async def ingestion_status(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        return _task_result(await ingestion.status(unit, arguments["task_id"]))


def _task_result(task: Json) -> ToolResult:
    text = (
        f"Ingestion {task['task_id']} is {task['status']}: {task['processed']} of "
        f"{pluralize(task['total'], 'chunk', 'chunks')}, {task['stored']} stored, {task['skipped']} already known."
    )
    if task["facts"] or task["contradictions"]:
        inferred = pluralize(task["facts"], "fact", "facts")
        text += f" {inferred} inferred, {task['contradictions']} contradicting known facts."
    if task.get("conflict_ids"):
        text += f" Settle with resolve_conflict: {', '.join(task['conflict_ids'])}."
    return ToolResult(text, f"{uris.INGESTIONS}/{task['task_id']}", task)


async def export(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        data = await transfer.export(unit, arguments)
    text = data["jsonl"] + (f"More with cursor {data['next_cursor']}" if data["next_cursor"] is not None else "")
    return ToolResult(text, uris.TRANSACTIONS if arguments.get("history", True) else uris.ENTRIES, data)


async def import_(context: CallContext, arguments: Json) -> ToolResult:
    async with context.open() as unit:
        data = await transfer.import_lines(unit, arguments)
    text = f"Imported {data['transactions']} transactions and {data['items']} items; {data['skipped']} already known."
    return ToolResult(text, uris.TRANSACTIONS, data)


HANDLERS: Final[Mapping[str, Callable[[CallContext, Json], Awaitable[ToolResult]]]] = {
    "store": store,
    "update": update,
    "query": query,
    "delete": delete,
    "relate": relate,
    "query_graph": query_graph,
    "undo": undo,
    "history": history,
    "resolve_conflict": resolve_conflict,
    "upsert_triple": upsert_triple,
    "update_triple": update_triple,
    "upsert_entity": upsert_entity,
    "merge_entities": merge_entities,
    "ingest": ingest,
    "ingestion_status": ingestion_status,
    "export": export,
    "import": import_,
}
"""The function of each tool in `tools.TOOLS`."""
FINISHERS: Final[Mapping[str, Callable[[CallContext, Json, ToolResult], Awaitable[ToolResult]]]] = {
    "ingest": finish_ingest
}
"""Functions that continue after the commit, for work that outlives a transaction. Not part of a dry run."""
