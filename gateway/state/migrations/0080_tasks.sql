-- Calls that outlive the connection of their client. `message` and the columns from `request` on are sealed: arguments,
-- results and messages cannot be read from the database alone.
CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    public_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    tool TEXT NOT NULL,
    state TEXT NOT NULL,
    message TEXT NOT NULL DEFAULT '',
    hold_key TEXT NOT NULL DEFAULT '',
    worker TEXT NOT NULL DEFAULT '',
    attempt INTEGER NOT NULL DEFAULT 0,
    lease_until DOUBLE PRECISION NOT NULL DEFAULT 0,
    sent INTEGER NOT NULL DEFAULT 0,
    repeatable INTEGER NOT NULL DEFAULT 0,
    cancelling INTEGER NOT NULL DEFAULT 0,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    deadline_at DOUBLE PRECISION NOT NULL,
    ttl DOUBLE PRECISION,
    expires_at DOUBLE PRECISION NOT NULL,
    bytes INTEGER NOT NULL DEFAULT 0,
    request TEXT NOT NULL,
    upstream TEXT NOT NULL DEFAULT '',
    input TEXT NOT NULL DEFAULT '',
    answers TEXT NOT NULL DEFAULT '',
    notes TEXT NOT NULL DEFAULT '',
    outcome TEXT NOT NULL DEFAULT ''
);

CREATE INDEX tasks_by_owner ON tasks (tenant, principal, created_at);
CREATE INDEX tasks_by_expiry ON tasks (expires_at);
CREATE INDEX tasks_by_lease ON tasks (state, lease_until);
CREATE INDEX tasks_by_worker ON tasks (worker);
CREATE INDEX tasks_by_hold ON tasks (tenant, hold_key);
