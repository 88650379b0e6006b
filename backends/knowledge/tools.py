"""The tools: what each takes, gives and does."""

from typing import Final

from backends.knowledge import schemas as s
from backends.knowledge import tool_handlers
from backends.knowledge.conflicts import STRATEGIES
from backends.knowledge.tool import Tool
from gateway.contract import Json

_TRIPLE: Final[dict[str, Json]] = {
    "subject": s.text(s.MAX_PART, "What the fact is about."),
    "predicate": s.text(s.MAX_PART, "How the two are related, such as `works_at`."),
    "object": s.text(s.MAX_PART, "What it is related to."),
}
_MULTI: Final[Json] = {
    "type": "boolean",
    "default": False,
    "description": "The predicate may have many values at once: do not look for contradictions.",
}
_NEW: Final = {**s.PROVENANCE, **s.VALIDITY}
_KIND: Final[Json] = {"type": "string", "enum": ["entry", "triple"], "default": "entry", "description": "What it is."}

TOOLS: Final = (
    Tool(
        "store",
        "Store an entry",
        "Remember something about a topic. Each call makes a new entry; correct an existing one with update.",
        2,
        s.closed({"topic": s.TOPIC, "content": s.CONTENT, "tags": s.TAGS, **_NEW}, ("topic", "content")),
        s.answer(s.ENTRY),
        tool_handlers.store,
    ),
    Tool(
        "update",
        "Correct an entry",
        "Change fields of an entry; what is not given stays, tags are replaced, null clears. "
        "With expected_version the change is refused when somebody else was faster.",
        2,
        s.closed(
            s.changed(
                {"id": s.ID, "topic": s.TOPIC, "content": s.CONTENT, "tags": s.TAGS, "expected_version": s.EXPECTED}
            ),
            ("id",),
        ),
        s.answer(s.ENTRY),
        tool_handlers.update,
    ),
    Tool(
        "query",
        "Search the memory",
        "Find entries by words in topic, content and tags, and through the graph; the best first, with scores. "
        "Without topic and content: list by tags, newest first.",
        0,
        s.closed(
            {
                "topic": s.text(s.MAX_TOPIC, "Words to look for."),
                "content": s.text(s.MAX_PART, "More words to look for."),
                "tags": {**s.TAGS, "description": "Only entries that have all of these."},
                "as_of": s.AS_OF,
                "limit": s.whole(1, 200, "How many at most: 20 for a search, 50 for a list, unless given."),
                "cursor": s.CURSOR,
            }
        ),
        s.answer(s.page_of(s.FOUND_ENTRY, retrieval_ms={"type": "number", "minimum": 0})),
        tool_handlers.query,
    ),
    Tool(
        "delete",
        "Delete an entry or triple",
        "Take an entry or triple out of the memory. It stays in the history, and undo brings it back.",
        2,
        s.closed({"id": s.ID, "entity_type": _KIND, "actor": s.ACTOR, "expected_version": s.EXPECTED}, ("id",)),
        s.answer(s.DELETED),
        tool_handlers.delete,
        destructive=True,
    ),
    Tool(
        "relate",
        "State a fact",
        "Add the triple subject, predicate, object to the graph. When a known triple gives the same subject and "
        "predicate another object at the same time, nothing is written and the conflict is returned: settle it with "
        "resolve_conflict.",
        2,
        s.closed({**_TRIPLE, "multi": _MULTI, **_NEW}, tuple(_TRIPLE)),
        s.answer(s.MADE_TRIPLE, s.CONFLICT),
        tool_handlers.relate,
    ),
    Tool(
        "query_graph",
        "Search the graph",
        "List triples whose parts contain the given texts, newest first; a name also finds the other names of its "
        "entity.",
        0,
        s.closed({**_TRIPLE, "as_of": s.AS_OF, "limit": s.whole(1, 200, "How many at most.", 50), "cursor": s.CURSOR}),
        s.answer(s.page_of(s.TRIPLE)),
        tool_handlers.query_graph,
    ),
    Tool(
        "undo",
        "Undo",
        "Revert the newest transactions, newest first, all or none. With actor: only that actor's own.",
        2,
        s.closed(
            {
                "count": s.whole(1, 100, "How many transactions.", 1),
                "actor": s.text(200, "Only transactions of this actor."),
            }
        ),
        s.answer(s.UNDONE),
        tool_handlers.undo,
        destructive=True,
    ),
    Tool(
        "history",
        "History",
        "List transactions, newest first, each with what it changed before and after.",
        0,
        s.closed(
            {
                "entity_type": {**_KIND, "enum": ["entry", "triple", "entity"], "description": "Only of this kind."},
                "entity_id": s.text(64, "Only what touched this entry, triple or entity."),
                "actor": s.text(200, "Only transactions of this actor."),
                "limit": s.whole(1, 100, "How many at most.", 20),
                "cursor": s.CURSOR,
            }
        ),
        s.answer(s.page_of(s.TRANSACTION)),
        tool_handlers.history,
    ),
    Tool(
        "resolve_conflict",
        "Settle a contradiction",
        "Say which fact stands: `replace` the known one, `retain_both`, or `reject` the new one.",
        2,
        s.closed(
            {
                "conflict_id": s.ID,
                "strategy": {"type": "string", "enum": list(STRATEGIES), "description": "What to do."},
                "actor": s.ACTOR,
            },
            ("conflict_id", "strategy"),
        ),
        s.answer(s.RESOLVED),
        tool_handlers.resolve_conflict,
        destructive=True,
    ),
    Tool(
        "upsert_triple",
        "Set a fact",
        "Make this the one value of subject and predicate: the known triple is changed, or a new one added.",
        1,
        s.closed({**_TRIPLE, "multi": _MULTI, **_NEW}, tuple(_TRIPLE)),
        s.answer(s.MADE_TRIPLE),
        tool_handlers.upsert_triple,
    ),
    Tool(
        "update_triple",
        "Correct a fact",
        "Change fields of a triple by its id; what is not given stays, null clears.",
        2,
        s.closed(
            {
                "id": s.ID,
                "expected_version": s.EXPECTED,
                **s.changed({name: _TRIPLE[name] for name in ("predicate", "object")}),
            },
            ("id",),
        ),
        s.answer(s.TRIPLE),
        tool_handlers.update_triple,
    ),
    Tool(
        "upsert_entity",
        "Name an entity",
        "The entity of that name, made if there is none; the aliases become further names of it.",
        1,
        s.closed(
            {
                "name": s.text(s.MAX_PART, "Its name, or one of its aliases."),
                "aliases": {
                    "type": "array",
                    "items": s.text(s.MAX_PART, "Another name."),
                    "maxItems": 50,
                    "description": "Other names of the same thing.",
                },
                "actor": s.ACTOR,
            },
            ("name",),
        ),
        s.answer(s.ENTITY),
        tool_handlers.upsert_entity,
    ),
    Tool(
        "merge_entities",
        "Merge two entities",
        "Two entities are one: all names of merge_id become names of keep_id. dry_run only counts what it would link.",
        2,
        s.closed(
            {
                "keep_id": s.ID,
                "merge_id": s.ID,
                "dry_run": {"type": "boolean", "default": False, "description": "Only say what would happen."},
                "actor": s.ACTOR,
            },
            ("keep_id", "merge_id"),
        ),
        s.answer(s.MERGED),
        tool_handlers.merge_entities,
        destructive=True,
    ),
    Tool(
        "ingest",
        "Take in a text",
        "Cut a long text into entries, skipping what is known word for word. A large one goes on in the background: "
        "ask ingestion_status, or wait for it with progress.",
        2,
        s.closed(
            {
                "content": s.text(900_000, "The text, at most 900 kB."),
                "topic": s.text(s.MAX_TOPIC, "The topic of every entry; by default the first line of each."),
                "tags": {**s.TAGS, "maxItems": 49},
                "wait": {"type": "boolean", "default": False, "description": "Answer only when it is done."},
                **_NEW,
            },
            ("content",),
        ),
        s.answer(s.TASK),
        tool_handlers.ingest,
    ),
    Tool(
        "ingestion_status",
        "Ask after an ingestion",
        "How far the ingestion of a text has come.",
        0,
        s.closed({"task_id": s.ID}, ("task_id",)),
        s.answer(s.TASK),
        tool_handlers.ingestion_status,
    ),
)
