CREATE TABLE launch_runs (
  run_id TEXT PRIMARY KEY,
  idempotency_key TEXT UNIQUE,
  config_hash TEXT NOT NULL,
  product_slug TEXT NOT NULL,
  state TEXT NOT NULL,
  started_at TEXT NOT NULL,
  finished_at TEXT
);
CREATE INDEX launch_runs_by_start ON launch_runs (started_at);
