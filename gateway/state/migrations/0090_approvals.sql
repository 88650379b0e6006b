-- A call that waits for the approval of other people. What was approved is bound by the digests and the policy version.
CREATE TABLE approvals (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    principal TEXT NOT NULL,
    tool TEXT NOT NULL,
    effect INTEGER NOT NULL,
    arguments TEXT,
    arguments_digest TEXT NOT NULL,
    definition_digest TEXT NOT NULL,
    policy_version TEXT NOT NULL,
    policies TEXT NOT NULL,
    reason TEXT NOT NULL,
    requirement TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    session TEXT,
    state TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    decided_at DOUBLE PRECISION,
    used_at DOUBLE PRECISION,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX approvals_by_call ON approvals (tenant, principal, tool, arguments_digest);
CREATE INDEX approvals_by_age ON approvals (created_at);

CREATE TABLE approval_decisions (
    tenant TEXT NOT NULL,
    approval_id TEXT NOT NULL,
    approver TEXT NOT NULL,
    approver_groups TEXT NOT NULL,
    decision TEXT NOT NULL,
    duration TEXT NOT NULL,
    reason TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, approval_id, approver)
);

-- Permission to call one tool for a time, or for one session, without another approval.
CREATE TABLE approval_grants (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    principal TEXT NOT NULL,
    tool TEXT NOT NULL,
    definition_digest TEXT NOT NULL,
    policy_version TEXT NOT NULL,
    session TEXT,
    approver TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    ends_at DOUBLE PRECISION NOT NULL,
    revoked_at DOUBLE PRECISION,
    revoked_by TEXT,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX approval_grants_by_tool ON approval_grants (tenant, principal, tool);

-- Notifications to send, and those that could not be delivered.
CREATE TABLE approval_deliveries (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    approval_id TEXT NOT NULL,
    channel TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at DOUBLE PRECISION NOT NULL,
    last_error TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);

CREATE INDEX approval_deliveries_by_time ON approval_deliveries (state, next_at);
