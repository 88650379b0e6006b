-- Plain tables that SQLite and PostgreSQL read alike; the full-text index is made by the search room of each engine.

-- One row. Every writer updates it first, so that writers of one tenant take turns and ids are in order of commit.
CREATE TABLE clock (
  one INTEGER PRIMARY KEY,
  last_id TEXT NOT NULL,
  last_number BIGINT NOT NULL,
  last_transaction TEXT
);

CREATE TABLE entries (
  id TEXT PRIMARY KEY,
  number BIGINT NOT NULL,
  topic TEXT NOT NULL,
  topic_key TEXT NOT NULL,
  content TEXT NOT NULL,
  content_digest TEXT NOT NULL,
  tags TEXT NOT NULL,
  source TEXT,
  actor TEXT,
  confidence DOUBLE PRECISION,
  valid_from TEXT,
  valid_to TEXT,
  version INTEGER NOT NULL,
  recorded_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  deleted_at TEXT
);
CREATE UNIQUE INDEX entries_number ON entries (number);
CREATE INDEX entries_topic ON entries (topic_key);
CREATE INDEX entries_digest ON entries (content_digest);

CREATE TABLE entry_tags (
  tag TEXT NOT NULL,
  entry_id TEXT NOT NULL,
  PRIMARY KEY (tag, entry_id)
);
CREATE INDEX entry_tags_entry ON entry_tags (entry_id);

CREATE TABLE triples (
  id TEXT PRIMARY KEY,
  number BIGINT NOT NULL,
  subject TEXT NOT NULL,
  subject_key TEXT NOT NULL,
  predicate TEXT NOT NULL,
  predicate_key TEXT NOT NULL,
  object TEXT NOT NULL,
  object_key TEXT NOT NULL,
  multi INTEGER NOT NULL,
  source TEXT,
  actor TEXT,
  confidence DOUBLE PRECISION,
  valid_from TEXT,
  valid_to TEXT,
  version INTEGER NOT NULL,
  recorded_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  deleted_at TEXT
);
CREATE UNIQUE INDEX triples_number ON triples (number);
CREATE INDEX triples_subject ON triples (subject_key, predicate_key);
CREATE INDEX triples_object ON triples (object_key);

CREATE TABLE entities (
  id TEXT PRIMARY KEY,
  number BIGINT NOT NULL,
  name TEXT NOT NULL,
  aliases TEXT NOT NULL,
  version INTEGER NOT NULL,
  recorded_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  deleted_at TEXT
);

-- Every name of every living entity: its own and its aliases.
CREATE TABLE names (
  name_key TEXT PRIMARY KEY,
  entity_id TEXT NOT NULL
);
CREATE INDEX names_entity ON names (entity_id);

CREATE TABLE conflicts (
  id TEXT PRIMARY KEY,
  body TEXT NOT NULL,
  resolution TEXT,
  expires_at TEXT NOT NULL
);
CREATE INDEX conflicts_expiry ON conflicts (expires_at);

CREATE TABLE transactions (
  id TEXT PRIMARY KEY,
  op TEXT NOT NULL,
  entity_type TEXT NOT NULL,
  entity_id TEXT NOT NULL,
  actor TEXT,
  changes TEXT NOT NULL,
  reverts TEXT,
  reverted_by TEXT,
  recorded_at TEXT NOT NULL
);
CREATE INDEX transactions_actor ON transactions (actor, id);

-- Which transactions touched what, also beside their main subject.
CREATE TABLE touches (
  entity_id TEXT NOT NULL,
  transaction_id TEXT NOT NULL,
  PRIMARY KEY (entity_id, transaction_id)
);

-- The order of a search with more than one page, so that its pages fit together while others write.
CREATE TABLE rankings (
  id TEXT PRIMARY KEY,
  digest TEXT NOT NULL,
  ranked TEXT NOT NULL,
  expires_at TEXT NOT NULL
);
CREATE INDEX rankings_expiry ON rankings (expires_at);

CREATE TABLE ingestions (
  id TEXT PRIMARY KEY,
  status TEXT NOT NULL,
  chunks TEXT NOT NULL,
  about TEXT NOT NULL,
  total INTEGER NOT NULL,
  processed INTEGER NOT NULL,
  stored INTEGER NOT NULL,
  skipped INTEGER NOT NULL,
  failure TEXT,
  recorded_at TEXT NOT NULL,
  updated_at TEXT NOT NULL
);
CREATE INDEX ingestions_status ON ingestions (status);
