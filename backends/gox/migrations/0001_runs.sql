CREATE TABLE runs (
  run_id TEXT PRIMARY KEY,
  correlation_id TEXT NOT NULL,
  type TEXT NOT NULL,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  started_at TEXT NOT NULL,
  ended_at TEXT,
  diff_summary TEXT NOT NULL DEFAULT '',
  error_code TEXT,
  error_message TEXT
);
CREATE INDEX runs_by_start ON runs (started_at);
