ALTER TABLE runs ADD COLUMN worker TEXT NOT NULL DEFAULT '';
CREATE INDEX runs_by_status ON runs (status);

CREATE TABLE idempotency (
  principal TEXT NOT NULL,
  tool TEXT NOT NULL,
  word TEXT NOT NULL,
  digest TEXT NOT NULL,
  worker TEXT NOT NULL,
  answer TEXT,
  made_at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (principal, tool, word)
);
CREATE INDEX idempotency_by_age ON idempotency (made_at);

CREATE TABLE workflow_runs (
  run_id TEXT PRIMARY KEY,
  workflow_id TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  status TEXT NOT NULL,
  started_at TEXT NOT NULL,
  ended_at TEXT,
  total_steps INTEGER NOT NULL,
  completed_steps INTEGER NOT NULL DEFAULT 0,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  error_code TEXT,
  error_message TEXT,
  definition TEXT NOT NULL,
  control TEXT NOT NULL,
  worker TEXT NOT NULL
);
CREATE INDEX workflow_runs_by_start ON workflow_runs (started_at);
CREATE INDEX workflow_runs_by_status ON workflow_runs (status);

CREATE TABLE workflow_steps (
  run_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  step_id TEXT NOT NULL,
  status TEXT NOT NULL,
  output TEXT,
  PRIMARY KEY (run_id, position)
);

CREATE TABLE workflow_logs (
  run_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  logged_at TEXT NOT NULL,
  level TEXT NOT NULL,
  message TEXT NOT NULL,
  step_id TEXT,
  action_id TEXT,
  PRIMARY KEY (run_id, position)
);
