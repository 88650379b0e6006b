CREATE TABLE api_keys (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    subject TEXT NOT NULL,
    kind TEXT NOT NULL,
    scopes TEXT NOT NULL,
    member_of TEXT NOT NULL,
    label TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION,
    last_used_at DOUBLE PRECISION,
    PRIMARY KEY (tenant, id)
);
