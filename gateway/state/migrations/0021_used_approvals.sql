-- An approval travels sealed with its caller; a row says only that it was used, which can happen once.
CREATE TABLE used_approvals (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX used_approvals_by_expiry ON used_approvals (expires_at);
