-- When an operator accepted the last change of a tool's definition, or, where changes are only told of, when it was seen.
ALTER TABLE catalogue_pins ADD COLUMN accepted_at DOUBLE PRECISION;
UPDATE catalogue_pins SET accepted_at = changed_at;
