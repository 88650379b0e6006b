"""JSON schemas of tool arguments and results."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.contract import Json

MAX_TOPIC: Final = 1_000
MAX_CONTENT: Final = 100_000
MAX_PART: Final = 2_000
MAX_DEPTH: Final = 6
STRATEGIES: Final = ("replace", "retain_both", "reject")
"""How `resolve_conflict` settles a conflict."""


def text(limit: int, description: str) -> Json:
    return {"type": "string", "maxLength": limit, "description": description}


def nullable(schema: Json) -> Json:
    """Return the schema with null allowed; null clears the field."""
    return {**schema, "type": [schema["type"], "null"]}


def integer(low: int, high: int, description: str, default: int | None = None) -> Json:
    schema: Json = {"type": "integer", "minimum": low, "maximum": high, "description": description}
    return schema if default is None else {**schema, "default": default}


def closed_object(properties: Mapping[str, Json], required: Sequence[str] = ()) -> Json:
    schema: Json = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


TOPIC: Final = text(MAX_TOPIC, "The topic, in a few words.")
CONTENT: Final = text(MAX_CONTENT, "The text of the entry.")
TAGS: Final[Json] = {
    "type": "array",
    "items": text(100, "A tag."),
    "maxItems": 50,
    "description": "Labels to search by.",
}
ID: Final = text(64, "Id of the item.")
ACTOR: Final = text(200, "Author of the change; by default the caller.")
CURSOR: Final = text(200, "next_cursor of the previous page.")
EXPECTED_VERSION: Final = integer(1, 2**31 - 1, "Reject with `conflict` unless the item has this version.")
PROVENANCE: Final[dict[str, Json]] = {
    "source": text(2_000, "Source of the fact."),
    "actor": ACTOR,
    "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "Confidence from 0 to 1."},
}
VALIDITY: Final[dict[str, Json]] = {
    "valid_from": text(64, "Start of validity, ISO 8601."),
    "valid_to": text(64, "End of validity, ISO 8601, or `forever`."),
}
AS_OF: Final = text(64, "Only facts valid at this time, ISO 8601; by default now, `any` for all times.")


def update_fields(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of an update tool: the given fields, plus provenance and validity, which null clears."""
    own = {**PROVENANCE, **VALIDITY}
    return {**fields, **{name: schema if name == "actor" else nullable(schema) for name, schema in own.items()}}


# ---- results ------------------------------------------------------------------------------------------------------

_STRING: Final[Json] = {"type": "string"}
_NULLABLE: Final[Json] = {"type": ["string", "null"]}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_FLAG: Final[Json] = {"type": "boolean"}
_STRINGS: Final[Json] = {"type": "array", "items": _STRING}
_SCORE: Final[Json] = {"type": "number", "minimum": 0, "maximum": 1}
_SCORES: Final = ("score_lexical", "score_semantic", "score_graph", "score_total")
_PROVENANCE_FIELDS: Final[dict[str, Json]] = {
    "source": _NULLABLE,
    "actor": _NULLABLE,
    "confidence": {"type": ["number", "null"]},
    "valid_from": _NULLABLE,
    "valid_to": _NULLABLE,
    "version": {"type": "integer", "minimum": 1},
    "recorded_at": _STRING,
    "updated_at": _STRING,
}


def _object(properties: Mapping[str, Json], required: Sequence[str]) -> Json:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


_ENTRY_FIELDS: Final[dict[str, Json]] = {
    "id": _STRING,
    "topic": _STRING,
    "content": _STRING,
    "tags": _STRINGS,
    **_PROVENANCE_FIELDS,
    "source_start": {"type": ["integer", "null"], "minimum": 0},
    "source_end": {"type": ["integer", "null"], "minimum": 0},
    "canonical_entity_id": _NULLABLE,
}
_TRIPLE_FIELDS: Final[dict[str, Json]] = {
    "id": _STRING,
    "subject": _STRING,
    "predicate": _STRING,
    "object": _STRING,
    "multi": _FLAG,
    "entry_id": _NULLABLE,
    "inferred": _FLAG,
    **_PROVENANCE_FIELDS,
}
_ENTITY_FIELDS: Final[dict[str, Json]] = {
    "id": _STRING,
    "name": _STRING,
    "aliases": _STRINGS,
    **{name: _PROVENANCE_FIELDS[name] for name in ("version", "recorded_at", "updated_at")},
}
ENTRY: Final = _object(_ENTRY_FIELDS, tuple(_ENTRY_FIELDS))
_SIMILAR: Final = _object({"id": _STRING, "topic": _STRING, "similarity": _SCORE}, ("id", "topic", "similarity"))
STORED_ENTRY: Final = _object(
    {**_ENTRY_FIELDS, "duplicate_of": _STRING, "similar_to": {"type": "array", "items": _SIMILAR}},
    tuple(_ENTRY_FIELDS),
)
TRIPLE: Final = _object(_TRIPLE_FIELDS, tuple(_TRIPLE_FIELDS))
WALKED_TRIPLE: Final = _object({**_TRIPLE_FIELDS, "hops": {"type": "integer", "minimum": 1}}, tuple(_TRIPLE_FIELDS))
ENTITY: Final = _object({**_ENTITY_FIELDS, "created": _FLAG}, (*_ENTITY_FIELDS, "created"))
UPSERTED_TRIPLE: Final = _object({**_TRIPLE_FIELDS, "created": _FLAG}, (*_TRIPLE_FIELDS, "created"))
CONFLICT: Final = _object(
    {
        "conflict_id": _STRING,
        "scope": _STRING,
        "existing": TRIPLE,
        "others": {"type": "array", "items": TRIPLE},
        "incoming": TRIPLE,
        "candidate_resolutions": _STRINGS,
        "expires_at": _STRING,
    },
    ("conflict_id", "scope", "existing", "others", "incoming", "candidate_resolutions", "expires_at"),
)
RESOLVED: Final = _object(
    {
        "conflict_id": _STRING,
        "strategy": _STRING,
        "triple": {"anyOf": [TRIPLE, {"type": "null"}]},
        "replaced_ids": _STRINGS,
    },
    ("conflict_id", "strategy", "triple", "replaced_ids"),
)
DELETED: Final = _object(
    {"id": _STRING, "entity_type": _STRING, "deleted": {"const": True}}, ("id", "entity_type", "deleted")
)
MERGED: Final = _object(
    {
        **_ENTITY_FIELDS,
        "merged_id": _STRING,
        "merged_count": _COUNT,
        "linked": _object({"entries": _COUNT, "triples": _COUNT}, ("entries", "triples")),
        "dry_run": _FLAG,
    },
    (*_ENTITY_FIELDS, "merged_id", "merged_count", "linked", "dry_run"),
)
UNDONE: Final = _object({"reverted": _STRINGS, "revert_ids": _STRINGS}, ("reverted", "revert_ids"))
TASK: Final = _object(
    {
        "task_id": _STRING,
        "status": {"enum": ["pending", "processing", "completed", "failed"]},
        **dict.fromkeys(("total", "processed", "stored", "skipped", "facts", "contradictions"), _COUNT),
        "conflict_ids": _STRINGS,
        "failure": _NULLABLE,
        "recorded_at": _STRING,
        "updated_at": _STRING,
    },
    ("task_id", "status", "total", "processed", "stored", "skipped", "failure", "recorded_at", "updated_at"),
)
_SNAPSHOTS: Final[dict[str, Json]] = {
    "entity_type": {"enum": ["entry", "triple", "entity"]},
    "entity_id": _STRING,
    "before_snapshot": {"type": ["object", "null"]},
    "after_snapshot": {"type": ["object", "null"]},
}
_TRANSACTION_FIELDS: Final[dict[str, Json]] = {
    "id": _STRING,
    "op": {"enum": ["CREATE", "UPDATE", "DELETE", "MERGE", "REVERT"]},
    **_SNAPSHOTS,
    "actor": _NULLABLE,
    "recorded_at": _STRING,
    "reverts": _NULLABLE,
    "reverted_by": _NULLABLE,
    "related": {"type": "array", "items": _object(_SNAPSHOTS, tuple(_SNAPSHOTS))},
}
TRANSACTION: Final = _object(_TRANSACTION_FIELDS, tuple(_TRANSACTION_FIELDS))
FOUND_ENTRY: Final = _object(
    {**_ENTRY_FIELDS, **dict.fromkeys(_SCORES, _SCORE), "graph_hops": _COUNT}, tuple(_ENTRY_FIELDS)
)


def page(item: Json, **more: Json) -> Json:
    properties: Json = {"items": {"type": "array", "items": item}, "next_cursor": _NULLABLE, **more}
    return _object(properties, ("items", "next_cursor", *more))


EXPORTED: Final = _object(
    {"jsonl": _STRING, "lines": _COUNT, "next_cursor": _NULLABLE}, ("jsonl", "lines", "next_cursor")
)
IMPORTED: Final = _object(
    {"transactions": _COUNT, "items": _COUNT, "skipped": _COUNT}, ("transactions", "items", "skipped")
)
_DIFF: Final[Json] = _object(
    {
        "summary": _STRING,
        "entries": {
            "type": "array",
            "items": _object(
                {"change": {"enum": ["create", "update", "delete"]}, **_SNAPSHOTS}, ("change", *_SNAPSHOTS)
            ),
        },
        "truncated": _FLAG,
    },
    ("summary", "entries", "truncated"),
)
"""The changes that a dry run would make."""
_ERROR: Final[Json] = _object(
    {"kind": _STRING, "code": _STRING, "message": _STRING, "retryable": _FLAG},
    ("kind", "code", "message", "retryable"),
)


def result(*forms: Json) -> Json:
    """Return the output schema: one of the forms, or the error object that every tool may return."""
    properties: dict[str, Any] = {"ok": {"const": False}, "error": _ERROR, "dryRun": {"const": True}, "diff": _DIFF}
    for form in forms:
        properties |= form["properties"]
    choices = [{"required": form["required"]} for form in forms]
    return {"type": "object", "properties": properties, "anyOf": [*choices, {"required": ["ok", "error"]}]}
