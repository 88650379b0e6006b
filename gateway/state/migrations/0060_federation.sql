-- An operator suspended the user; the identity provider refused the user; access is confirmed until then (null: no limit).
ALTER TABLE users ADD COLUMN suspended_at DOUBLE PRECISION;
ALTER TABLE users ADD COLUMN refused_at DOUBLE PRECISION;
ALTER TABLE users ADD COLUMN valid_until DOUBLE PRECISION;

-- Users who sign in at an identity provider. `sealed` is the provider's token that confirms the user again.
CREATE TABLE federated_users (
    issuer TEXT NOT NULL,
    external_subject TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    provider TEXT NOT NULL,
    display_name TEXT NOT NULL,
    email TEXT NOT NULL,
    provider_groups TEXT NOT NULL,
    scim_value TEXT NOT NULL,
    sealed TEXT,
    signed_in_at DOUBLE PRECISION NOT NULL,
    checked_at DOUBLE PRECISION NOT NULL,
    lease_until DOUBLE PRECISION,
    PRIMARY KEY (issuer, external_subject)
);

CREATE UNIQUE INDEX federated_users_by_user ON federated_users (tenant, subject);
CREATE INDEX federated_users_by_scim ON federated_users (tenant, provider, scim_value);

-- Sign-ins that wait for the provider's redirect, by digest of their state and sealed with it.
CREATE TABLE provider_sign_ins (
    digest TEXT PRIMARY KEY,
    provider TEXT NOT NULL,
    browser TEXT NOT NULL,
    sealed TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);

-- Sessions at a provider, for logout tokens that name only a session.
CREATE TABLE provider_sessions (
    issuer TEXT NOT NULL,
    sid TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (issuer, sid)
);
