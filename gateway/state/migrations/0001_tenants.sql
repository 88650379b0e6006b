-- What the settings say of read_only is kept apart from what an operator says: either holds.
CREATE TABLE tenants (
    name TEXT PRIMARY KEY,
    read_only BOOLEAN NOT NULL DEFAULT FALSE,
    read_only_by_settings BOOLEAN NOT NULL DEFAULT FALSE,
    suspended BOOLEAN NOT NULL DEFAULT FALSE,
    backends TEXT NOT NULL DEFAULT '["*"]'
);
