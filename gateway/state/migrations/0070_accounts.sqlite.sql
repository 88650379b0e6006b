-- Data keys of the vault, one or more per tenant. Each is sealed by the master key, which is not in the database.
CREATE TABLE vault_keys (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    master TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- Accounts of principals at remote servers. `access` and `refresh` are sealed and bound to the other columns.
CREATE TABLE accounts (
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    backend TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    issuer TEXT NOT NULL,
    version INTEGER NOT NULL,
    access TEXT NOT NULL,
    refresh TEXT,
    client TEXT NOT NULL,
    scopes TEXT NOT NULL,
    expires_at DOUBLE PRECISION,
    lifetime DOUBLE PRECISION,
    connected_at DOUBLE PRECISION NOT NULL,
    used_at DOUBLE PRECISION,
    lease_owner TEXT,
    lease_until DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, principal, backend)
);

-- The gateway's own registrations at the authorization servers of remote servers.
CREATE TABLE account_clients (
    backend TEXT NOT NULL,
    issuer TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    client_id TEXT NOT NULL,
    secret TEXT,
    method TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (backend, issuer, redirect_uri)
);

CREATE TRIGGER insert_accounts AFTER INSERT ON accounts BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('accounts', NEW.id);
END;

-- Leases and times of last use are not held in memory.
CREATE TRIGGER update_accounts AFTER UPDATE OF version, state ON accounts BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('accounts', NEW.id);
END;

CREATE TRIGGER delete_accounts AFTER DELETE ON accounts BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('accounts', OLD.id);
END;
