"""What each tool does, and the sentence it answers with."""

from time import perf_counter

from backends.knowledge import conflicts, entities, entries, ledger, triples, uris
from backends.knowledge import history as past
from backends.knowledge import ingest as ingestion
from backends.knowledge import undo as undoing
from backends.knowledge.call_context import Visit
from backends.knowledge.search import graph_query
from backends.knowledge.search import query as searching
from backends.knowledge.tool_results import (
    Answer,
    counted,
    entry_line,
    listing,
    transaction_line,
    triple_line,
    uri_with,
)
from backends.knowledge.unit_of_work import Change
from gateway.contract import Json

_ASKED = ("topic", "content", "tags", "as_of", "limit", "cursor")
_GRAPH_ASKED = ("subject", "predicate", "object", "as_of", "limit", "cursor")


async def store(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        entry = await entries.store(book, arguments)
    return Answer(f"Stored entry {entry['id']}.", uris.of("entry", entry["id"]), entry)


async def update(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        entry = await entries.update(book, arguments)
    text = f"Updated entry {entry['id']} to version {entry['version']}."
    return Answer(text, uris.of("entry", entry["id"]), entry)


async def query(visit: Visit, arguments: Json) -> Answer:
    started = perf_counter()
    async with visit.open() as book:
        page = await searching.query(book, arguments)
    data = {**page.as_json(), "retrieval_ms": round((perf_counter() - started) * 1000, 3)}
    text = searching.asked(arguments)
    head = f"Found {counted(len(page.items), 'entry', 'entries')}" + (f' matching "{text}".' if text else ".")
    uri = uri_with(uris.ENTRIES, {name: arguments.get(name) for name in _ASKED})
    return Answer(listing(head, [*map(entry_line, page.items)], page.next_cursor), uri, data)


async def delete(visit: Visit, arguments: Json) -> Answer:
    kind = arguments.get("entity_type", "entry")
    async with visit.open() as book:
        await book.begin_writing()
        before = await ledger.get(book, kind, arguments["id"], arguments.get("expected_version"))
        await ledger.record(book, "DELETE", [Change(kind, before["id"], before, None)], actor=arguments.get("actor"))
    data: Json = {"id": before["id"], "entity_type": kind, "deleted": True}
    return Answer(f"Deleted {kind} {before['id']}.", uris.of(kind, before["id"]), data)


async def relate(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        found = await conflicts.relate(book, arguments)
    if "conflict_id" in found:
        text = (
            f"Conflict detected: nothing was written. Known: {triple_line(found['existing'])}. "
            f"Settle it with resolve_conflict {found['conflict_id']}: {', '.join(found['candidate_resolutions'])}."
        )
        return Answer(text, f"{uris.CONFLICTS}/{found['conflict_id']}", found)
    return _made("Created" if found["created"] else "Already known:", found)


async def upsert_triple(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        triple, created = await triples.upsert(book, arguments)
    return _made("Created" if created else "Set", {**triple, "created": created})


async def update_triple(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        return _made("Updated", await triples.update(book, arguments))


def _made(verb: str, triple: Json) -> Answer:
    return Answer(f"{verb} triple {triple_line(triple)}.", uris.of("triple", triple["id"]), triple)


async def resolve_conflict(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        outcome = await conflicts.resolve(book, arguments)
    said = {
        "replace": f"replaced {counted(len(outcome['replaced_ids']), 'triple', 'triples')}",
        "retain_both": "both are kept",
        "reject": "the new one is not kept",
    }
    text = f"Resolved conflict {outcome['conflict_id']}: {said[outcome['strategy']]}."
    return Answer(text, f"{uris.CONFLICTS}/{outcome['conflict_id']}", outcome)


async def query_graph(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        page = await graph_query.query_graph(book, arguments)
    head = f"Found {counted(len(page.items), 'triple', 'triples')}."
    uri = uri_with(uris.TRIPLES, {name: arguments.get(name) for name in _GRAPH_ASKED})
    text = listing(head, [*map(triple_line, page.items)], page.next_cursor)
    return Answer(text, uri, page.as_json())


async def undo(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        outcome = await undoing.undo(book, arguments)
    reverted = outcome["reverted"]
    head = f"Reverted {counted(len(reverted), 'transaction', 'transactions')}." if reverted else "Nothing to undo."
    return Answer(listing(head, reverted), uris.TRANSACTIONS, outcome)


async def history(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        page = await past.history(book, arguments)
    head = f"{counted(len(page.items), 'transaction', 'transactions')}."
    text = listing(head, [*map(transaction_line, page.items)], page.next_cursor)
    return Answer(text, uris.TRANSACTIONS, page.as_json())


async def upsert_entity(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        entity = await entities.upsert(book, arguments)
    text = f"{'Created' if entity['created'] else 'Known'} entity {_entity_line(entity)}."
    return Answer(text, uris.of("entity", entity["id"]), entity)


async def merge_entities(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        entity = await entities.merge(book, arguments)
    linked = entity["linked"]
    text = (
        f"{'Would merge' if entity['dry_run'] else 'Merged'} {entity['merged_id']} into {_entity_line(entity)}; "
        f"{counted(linked['entries'], 'entry', 'entries')} and "
        f"{counted(linked['triples'], 'triple', 'triples')} come with it."
    )
    return Answer(text, uris.of("entity", entity["id"]), entity)


def _entity_line(entity: Json) -> str:
    also = f" (also {', '.join(entity['aliases'])})" if entity["aliases"] else ""
    return f"{entity['id']} {entity['name']}{also}"


async def ingest(visit: Visit, arguments: Json) -> Answer:
    return _task(await ingestion.ingest(visit, arguments))


async def ingestion_status(visit: Visit, arguments: Json) -> Answer:
    async with visit.open() as book:
        return _task(await ingestion.status(book, arguments["task_id"]))


def _task(task: Json) -> Answer:
    text = (
        f"Ingestion {task['task_id']} is {task['status']}: {task['processed']} of "
        f"{counted(task['total'], 'chunk', 'chunks')}, {task['stored']} stored, {task['skipped']} already known."
    )
    return Answer(text, f"{uris.INGESTIONS}/{task['task_id']}", task)
