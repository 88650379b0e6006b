"""The table of tools: descriptions and schemas. `tool_handlers.HANDLERS` has their functions."""

from typing import Final

from backends.knowledge import schemas as s
from backends.knowledge.tool import Tool
from gateway.contract import Json

_TRIPLE: Final[dict[str, Json]] = {
    "subject": s.text(s.MAX_PART, "Subject of the fact."),
    "predicate": s.text(s.MAX_PART, "Relation between subject and object, such as `works_at`."),
    "object": s.text(s.MAX_PART, "Object of the fact."),
}
_MULTI: Final[Json] = {
    "type": "boolean",
    "default": False,
    "description": "The predicate may have several values at once: do not check for contradictions.",
}
_ON_DUPLICATE: Final[Json] = {
    "type": "string",
    "enum": ["return", "store", "update"],
    "default": "return",
    "description": "If the entry is known: return it, store it again, or update its source, confidence and spelling.",
}
_ENTRY_ID: Final = s.text(64, "The entry that states the fact; its source becomes the fact's.")
_NEW_FACT: Final = {**s.PROVENANCE, **s.VALIDITY}
_ENTITY_TYPE: Final[Json] = {
    "type": "string",
    "enum": ["entry", "triple"],
    "default": "entry",
    "description": "Type of the item.",
}

TOOLS: Final = (
    Tool(
        "store",
        "Store an entry",
        "Remember something about a topic; correct an existing entry with update. The same topic, content and tags "
        "again return the known entry as duplicate_of; similar_to lists entries that say nearly the same.",
        2,
        s.closed_object(
            {"topic": s.TOPIC, "content": s.CONTENT, "tags": s.TAGS, "on_duplicate": _ON_DUPLICATE, **_NEW_FACT},
            ("topic", "content"),
        ),
        s.result(s.STORED_ENTRY),
    ),
    Tool(
        "update",
        "Correct an entry",
        "Change fields of an entry. Omitted fields stay, tags are replaced, null clears. "
        "With expected_version the change is rejected if the entry has changed since.",
        2,
        s.closed_object(
            s.update_fields(
                {
                    "id": s.ID,
                    "topic": s.TOPIC,
                    "content": s.CONTENT,
                    "tags": s.TAGS,
                    "expected_version": s.EXPECTED_VERSION,
                }
            ),
            ("id",),
        ),
        s.result(s.ENTRY),
    ),
    Tool(
        "query",
        "Search the memory",
        "Find entries by words in topic, content and tags, and through the graph; the best first, with scores. "
        "Without topic and content: list by tags, newest first.",
        0,
        s.closed_object(
            {
                "topic": s.text(s.MAX_TOPIC, "Words to look for."),
                "content": s.text(s.MAX_PART, "More words to look for."),
                "tags": {**s.TAGS, "description": "Only entries that have all of these."},
                "as_of": s.AS_OF,
                "limit": s.integer(1, 200, "Maximum number of entries; by default 20 for a search, 50 for a list."),
                "cursor": s.CURSOR,
            }
        ),
        s.result(s.page(s.FOUND_ENTRY, retrieval_ms={"type": "number", "minimum": 0})),
    ),
    Tool(
        "delete",
        "Delete an entry or triple",
        "Delete an entry or triple. It stays in the history, and undo restores it.",
        2,
        s.closed_object(
            {"id": s.ID, "entity_type": _ENTITY_TYPE, "actor": s.ACTOR, "expected_version": s.EXPECTED_VERSION}, ("id",)
        ),
        s.result(s.DELETED),
        destructive=True,
    ),
    Tool(
        "relate",
        "State a fact",
        "Add the triple subject, predicate, object to the graph. When a known triple gives the same subject and "
        "predicate another object at the same time, nothing is written and the conflict is returned: settle it with "
        "resolve_conflict.",
        2,
        s.closed_object({**_TRIPLE, "multi": _MULTI, "entry_id": _ENTRY_ID, **_NEW_FACT}, tuple(_TRIPLE)),
        s.result(s.UPSERTED_TRIPLE, s.CONFLICT),
    ),
    Tool(
        "query_graph",
        "Search the graph",
        "List triples whose parts contain the given texts, newest first; a name also finds the other names of its "
        "entity. With depth, direction or predicates: walk the graph from the name in subject, or backwards from the "
        "name in object; each triple comes with its hops.",
        0,
        s.closed_object(
            {
                **_TRIPLE,
                "entry_id": s.text(64, "Only triples that this entry states."),
                "depth": s.integer(1, s.MAX_DEPTH, "Walk: maximum number of hops from the start; by default 1."),
                "direction": {
                    "type": "string",
                    "enum": ["out", "in", "both"],
                    "description": "Walk: from subjects to objects, against it, or both ways.",
                },
                "predicates": {
                    "type": "array",
                    "items": _TRIPLE["predicate"],
                    "minItems": 1,
                    "maxItems": 20,
                    "description": "Walk: follow only these relations.",
                },
                "as_of": s.AS_OF,
                "limit": s.integer(1, 200, "Maximum number of items.", 50),
                "cursor": s.CURSOR,
            }
        ),
        s.result(s.page(s.WALKED_TRIPLE)),
    ),
    Tool(
        "undo",
        "Undo",
        "Revert the newest transactions, newest first, all or none. With actor: only that actor's own.",
        2,
        s.closed_object(
            {
                "count": s.integer(1, 100, "Number of transactions.", 1),
                "actor": s.text(200, "Only transactions of this actor."),
            }
        ),
        s.result(s.UNDONE),
        destructive=True,
    ),
    Tool(
        "history",
        "History",
        "List transactions, newest first, each with snapshots before and after the change.",
        0,
        s.closed_object(
            {
                "entity_type": {
                    **_ENTITY_TYPE,
                    "enum": ["entry", "triple", "entity"],
                    "description": "Only items of this type.",
                },
                "entity_id": s.text(64, "Only changes of this entry, triple or entity."),
                "actor": s.text(200, "Only transactions of this actor."),
                "limit": s.integer(1, 100, "Maximum number of items.", 20),
                "cursor": s.CURSOR,
            }
        ),
        s.result(s.page(s.TRANSACTION)),
    ),
    Tool(
        "resolve_conflict",
        "Resolve a conflict",
        "Settle a conflict of two facts: `replace` the known one, `retain_both`, or `reject` the new one.",
        2,
        s.closed_object(
            {
                "conflict_id": s.ID,
                "strategy": {"type": "string", "enum": list(s.STRATEGIES), "description": "Resolution strategy."},
                "actor": s.ACTOR,
            },
            ("conflict_id", "strategy"),
        ),
        s.result(s.RESOLVED),
        destructive=True,
    ),
    Tool(
        "upsert_triple",
        "Set a fact",
        "Set the only value of subject and predicate: change the known triple, or add a new one.",
        1,
        s.closed_object({**_TRIPLE, "multi": _MULTI, **_NEW_FACT}, tuple(_TRIPLE)),
        s.result(s.UPSERTED_TRIPLE),
    ),
    Tool(
        "update_triple",
        "Correct a fact",
        "Change fields of a triple by its id. Omitted fields stay, null clears.",
        2,
        s.closed_object(
            {
                "id": s.ID,
                "expected_version": s.EXPECTED_VERSION,
                **s.update_fields({name: _TRIPLE[name] for name in ("predicate", "object")}),
            },
            ("id",),
        ),
        s.result(s.TRIPLE),
    ),
    Tool(
        "upsert_entity",
        "Name an entity",
        "Create the entity with this name, or find it if it exists. The aliases become further names of it.",
        1,
        s.closed_object(
            {
                "name": s.text(s.MAX_PART, "Its name, or one of its aliases."),
                "aliases": {
                    "type": "array",
                    "items": s.text(s.MAX_PART, "Another name."),
                    "maxItems": 50,
                    "description": "Other names of the same entity.",
                },
                "actor": s.ACTOR,
            },
            ("name",),
        ),
        s.result(s.ENTITY),
    ),
    Tool(
        "merge_entities",
        "Merge two entities",
        "Merge two entities: all names of merge_id become names of keep_id. dry_run only counts what it would link.",
        2,
        s.closed_object(
            {
                "keep_id": s.ID,
                "merge_id": s.ID,
                "dry_run": {
                    "type": "boolean",
                    "default": False,
                    "description": "Return what would happen without changing anything.",
                },
                "actor": s.ACTOR,
            },
            ("keep_id", "merge_id"),
        ),
        s.result(s.MERGED),
        destructive=True,
    ),
    Tool(
        "ingest",
        "Ingest a text",
        "Split a long text into entries and skip exact duplicates. A large text is processed in the background: "
        "poll ingestion_status, or set wait to receive progress.",
        2,
        s.closed_object(
            {
                "content": s.text(900_000, "The text, at most 900 kB."),
                "topic": s.text(s.MAX_TOPIC, "The topic of every entry; by default the first line of each."),
                "tags": {**s.TAGS, "maxItems": 49},
                "wait": {
                    "type": "boolean",
                    "default": False,
                    "description": "Return only when the ingestion is finished.",
                },
                "extract_facts": {
                    "type": "boolean",
                    "default": False,
                    "description": "Have the client's model find facts in the text and store them as inferred triples. "
                    "Needs a client with sampling; implies wait.",
                },
                **_NEW_FACT,
            },
            ("content",),
        ),
        s.result(s.TASK),
    ),
    Tool(
        "ingestion_status",
        "Ingestion status",
        "Return the status and progress of an ingestion.",
        0,
        s.closed_object({"task_id": s.ID}, ("task_id",)),
        s.result(s.TASK),
    ),
    Tool(
        "export",
        "Export the memory",
        "Return the memory as JSON Lines, page by page: every change since the beginning, or only the current items.",
        0,
        s.closed_object(
            {
                "history": {
                    "type": "boolean",
                    "default": True,
                    "description": "All changes, oldest first; false for the current entries, triples and entities.",
                },
                "cursor": s.CURSOR,
            }
        ),
        s.result(s.EXPORTED),
        # It returns everything at once, deleted texts included.
        confirmed=True,
    ),
    Tool(
        "import",
        "Import a memory",
        "Import lines of an export. Changes are replayed with their ids, authors and times; known ones are skipped.",
        1,
        s.closed_object(
            {"jsonl": s.text(900_000, "JSON Lines, at most 900 kB: one page of an export."), "actor": s.ACTOR},
            ("jsonl",),
        ),
        s.result(s.IMPORTED),
    ),
)
