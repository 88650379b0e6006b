-- Answers of writes with an idempotency key, kept for a day.
CREATE TABLE idempotency (
  principal TEXT NOT NULL,
  tool TEXT NOT NULL,
  word TEXT NOT NULL,
  digest TEXT NOT NULL,
  answer TEXT NOT NULL,
  recorded_at TEXT NOT NULL,
  PRIMARY KEY (principal, tool, word)
);
CREATE INDEX idempotency_age ON idempotency (recorded_at);

-- Equal entries have equal digests of their normalized topic, content and tags; null in rows older than this column.
ALTER TABLE entries ADD COLUMN duplicate_digest TEXT;
CREATE INDEX entries_duplicate ON entries (duplicate_digest);
-- Where in its source an ingested entry stands, in characters.
ALTER TABLE entries ADD COLUMN source_start INTEGER;
ALTER TABLE entries ADD COLUMN source_end INTEGER;

-- The entry that a fact was taken from, and whether a model inferred it.
ALTER TABLE triples ADD COLUMN entry_id TEXT;
ALTER TABLE triples ADD COLUMN inferred INTEGER NOT NULL DEFAULT 0;
CREATE INDEX triples_entry ON triples (entry_id);

ALTER TABLE ingestions ADD COLUMN facts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ingestions ADD COLUMN contradictions INTEGER NOT NULL DEFAULT 0;
