-- A transaction is found by its main subject; `touches` holds only what it changed beside that.
CREATE INDEX transactions_entity ON transactions (entity_id);
