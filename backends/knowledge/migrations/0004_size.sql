-- Bytes of all changes as they are written down; null until the next change of a memory that is older than this column.
ALTER TABLE clock ADD COLUMN stored_bytes BIGINT;
