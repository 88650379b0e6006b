-- One vector per entry, as 8-bit integers; `sequence` grows with every vector written, so that a reader fetches only new ones.
CREATE TABLE entry_vectors (
  number BIGINT PRIMARY KEY,
  model TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  vector BYTEA NOT NULL
);
CREATE INDEX entry_vectors_sequence ON entry_vectors (sequence);

-- With pgvector, the server compares vectors itself. Creating the extension needs a right that this role may lack.
DO $$ BEGIN
  CREATE EXTENSION IF NOT EXISTS vector;
EXCEPTION WHEN OTHERS THEN
  RAISE NOTICE 'pgvector is not available: vectors are compared in the gateway';
END $$;
DO $$ DECLARE home TEXT; BEGIN
  SELECT nspname INTO home FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector';
  IF home IS NOT NULL THEN
    EXECUTE format('ALTER TABLE entry_vectors ADD COLUMN embedding %I.vector', home);
  END IF;
END $$;

-- Entries whose text is newer than their vector.
CREATE TABLE pending_vectors (entry_id TEXT PRIMARY KEY);
