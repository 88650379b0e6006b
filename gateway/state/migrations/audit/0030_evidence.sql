-- Records are numbered per writer over all tenants, so that a missing chain shows. A record that ends a call refers to
-- the number of the record that was committed before the call was sent.
ALTER TABLE audit ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN intent BIGINT NOT NULL DEFAULT 0;
CREATE INDEX audit_ends ON audit (tenant, writer, intent) WHERE intent > 0;

-- Proves that the gateway itself deleted the records up to `pruned_sequence`.
ALTER TABLE audit_chains ADD COLUMN pruned_seal TEXT NOT NULL DEFAULT '';
