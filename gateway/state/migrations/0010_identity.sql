-- Private keys are sealed with a secret that is not in the database.
CREATE TABLE signing_keys (
    kid TEXT PRIMARY KEY,
    sealed TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    retired_at DOUBLE PRECISION
);

-- What is no longer good before its time: a token, a family of tokens, a user, a client.
CREATE TABLE revocations (
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (kind, value)
);

CREATE TABLE users (
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    password TEXT,
    scopes TEXT NOT NULL,
    member_of TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, subject)
);

-- A browser's session, and codes that open one; both by digest.
CREATE TABLE browser_sessions (
    digest TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);

CREATE TABLE signin_codes (
    digest TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);

-- A client belongs to no tenant until somebody signs in with it; a service's own client does from the start.
CREATE TABLE oauth_clients (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    service TEXT NOT NULL,
    secret TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    used_at DOUBLE PRECISION
);

CREATE TABLE oauth_codes (
    digest TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    client TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    scopes TEXT NOT NULL,
    resource TEXT NOT NULL,
    challenge TEXT NOT NULL,
    family TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    used_at DOUBLE PRECISION
);

-- `successor` is what a refresh answered, sealed under the token that asked for it: nobody else can read it.
CREATE TABLE refresh_tokens (
    digest TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    client TEXT NOT NULL,
    scopes TEXT NOT NULL,
    resource TEXT NOT NULL,
    family TEXT NOT NULL,
    generation INTEGER NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    ends_at DOUBLE PRECISION NOT NULL,
    rotated_at DOUBLE PRECISION,
    successor TEXT
);

CREATE INDEX refresh_tokens_by_family ON refresh_tokens (family);
CREATE INDEX refresh_tokens_by_user ON refresh_tokens (tenant, subject);

-- Ids of client assertions, each good once.
CREATE TABLE assertion_ids (
    digest TEXT PRIMARY KEY,
    expires_at DOUBLE PRECISION NOT NULL
);
