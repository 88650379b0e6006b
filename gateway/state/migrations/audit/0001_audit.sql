CREATE TABLE audit (
    at DOUBLE PRECISION NOT NULL,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    credential TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    method TEXT NOT NULL,
    target TEXT NOT NULL,
    effect INTEGER,
    decision TEXT NOT NULL,
    policies TEXT NOT NULL,
    arguments_digest TEXT NOT NULL,
    outcome TEXT NOT NULL,
    duration_us BIGINT NOT NULL,
    trace_id TEXT NOT NULL
);

CREATE INDEX audit_by_tenant ON audit (tenant, at);
