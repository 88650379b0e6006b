-- The accepted definition of each tool beside the one that was read last, with its text, so that the difference can be shown.
ALTER TABLE catalogue_pins ADD COLUMN definition TEXT NOT NULL DEFAULT '';
ALTER TABLE catalogue_pins ADD COLUMN accepted_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE catalogue_pins ADD COLUMN accepted_definition TEXT NOT NULL DEFAULT '';
ALTER TABLE catalogue_pins ADD COLUMN accepted_by TEXT NOT NULL DEFAULT '';
-- Earlier versions marked a change as accepted when they read it, unless they denied changes. An operator accepts later.
UPDATE catalogue_pins SET accepted_at = NULL WHERE accepted_at = changed_at;
UPDATE catalogue_pins SET accepted_digest = digest WHERE changed_at IS NULL OR accepted_at IS NOT NULL;
