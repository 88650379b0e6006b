-- One token per tenant, by digest. `provider` is the identity provider whose users it may deactivate.
CREATE TABLE scim_tokens (
    tenant TEXT PRIMARY KEY,
    provider TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);

CREATE UNIQUE INDEX scim_tokens_by_digest ON scim_tokens (digest);

-- Provisioned users and groups. A deleted user stays, so that it counts as deactivated until it is created again.
CREATE TABLE scim_resources (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    external_id TEXT NOT NULL,
    active INTEGER NOT NULL,
    document TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    deleted_at DOUBLE PRECISION,
    PRIMARY KEY (tenant, kind, id)
);

CREATE UNIQUE INDEX scim_users_by_name ON scim_resources (tenant, name)
    WHERE kind = 'User' AND deleted_at IS NULL;
CREATE INDEX scim_resources_by_external_id ON scim_resources (tenant, kind, external_id);

CREATE TABLE scim_members (
    tenant TEXT NOT NULL,
    group_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    PRIMARY KEY (tenant, group_id, user_id)
);

CREATE INDEX scim_members_by_user ON scim_members (tenant, user_id);
