-- One vector per entry, as 8-bit integers; `sequence` grows with every vector written, so that a reader fetches only new ones.
CREATE TABLE entry_vectors (
  number INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  vector BLOB NOT NULL
);
CREATE INDEX entry_vectors_sequence ON entry_vectors (sequence);

-- Entries whose text is newer than their vector.
CREATE TABLE pending_vectors (entry_id TEXT PRIMARY KEY);

-- The indexed words, for other forms of a searched word.
CREATE VIRTUAL TABLE entry_terms USING fts5vocab('entry_words', 'row');
