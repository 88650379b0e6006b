"""SQLAlchemy table objects of one tenant's memory; the migrations define the columns."""

from typing import Final

from sqlalchemy import column, table

_PROVENANCE: Final = ("source", "actor", "confidence", "valid_from", "valid_to")
_LIFE: Final = ("version", "recorded_at", "updated_at", "deleted_at")

clock = table("clock", *map(column, ("one", "last_id", "last_number", "last_transaction", "stored_bytes")))

entries = table(
    "entries",
    *map(column, ("id", "number", "topic", "topic_key", "content", "content_digest", "tags", *_PROVENANCE, *_LIFE)),
    *map(column, ("duplicate_digest", "source_start", "source_end")),
)
entry_tags = table("entry_tags", column("tag"), column("entry_id"))
triples = table(
    "triples",
    *map(column, ("id", "number", "subject", "subject_key", "predicate", "predicate_key", "object", "object_key")),
    *map(column, ("multi", *_PROVENANCE, *_LIFE, "entry_id", "inferred")),
)
entities = table("entities", *map(column, ("id", "number", "name", "aliases", *_LIFE)))
names = table("names", column("name_key"), column("entity_id"))
conflicts = table("conflicts", *map(column, ("id", "body", "resolution", "expires_at")))
transactions = table(
    "transactions",
    *map(column, ("id", "op", "entity_type", "entity_id", "actor", "changes", "reverts", "reverted_by", "recorded_at")),
)
touches = table("touches", column("entity_id"), column("transaction_id"))
rankings = table("rankings", *map(column, ("id", "digest", "ranked", "expires_at")))
idempotency = table("idempotency", *map(column, ("principal", "tool", "word", "digest", "answer", "recorded_at")))
entry_vectors = table("entry_vectors", *map(column, ("number", "model", "sequence", "vector")))
pending_vectors = table("pending_vectors", column("entry_id"))
ingestions = table(
    "ingestions",
    *map(column, ("id", "status", "chunks", "about", "total", "processed", "stored", "skipped", "failure", "facts")),
    column("contradictions"),
    column("recorded_at"),
    column("updated_at"),
)
