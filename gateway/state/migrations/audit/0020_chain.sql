-- Each writer's records of a tenant form a chain: a record's hash covers it and the hash before it.
DROP TABLE audit;
CREATE TABLE audit (
    tenant TEXT NOT NULL,
    writer TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
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
    trace_id TEXT NOT NULL,
    context TEXT NOT NULL,
    approved TEXT NOT NULL,
    actor TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (tenant, writer, sequence)
);

CREATE INDEX audit_by_tenant ON audit (tenant, at);
CREATE INDEX audit_by_time ON audit (at);

-- Where each chain ends, and where it begins since older records were let go.
CREATE TABLE audit_chains (
    tenant TEXT NOT NULL,
    writer TEXT NOT NULL,
    pruned_sequence BIGINT NOT NULL DEFAULT 0,
    pruned_hash TEXT NOT NULL DEFAULT '',
    last_sequence BIGINT NOT NULL,
    last_hash TEXT NOT NULL,
    PRIMARY KEY (tenant, writer)
);
