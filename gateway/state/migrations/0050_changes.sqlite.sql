-- Records changed rows for the processes that hold them in memory. Being triggers, they cover writers of every version.
-- Sequence numbers have no gaps: a reader whose last row is deleted knows that it missed some, and loads everything.
CREATE TABLE changes (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    table_name TEXT NOT NULL,
    row_key TEXT NOT NULL
);

-- The first position of a reader.
INSERT INTO changes (table_name, row_key) VALUES ('', '');

CREATE TRIGGER prune_changes AFTER INSERT ON changes BEGIN
    DELETE FROM changes WHERE sequence <= NEW.sequence - 10000;
END;

CREATE TRIGGER insert_tenants AFTER INSERT ON tenants BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('tenants', NEW.name);
END;

CREATE TRIGGER update_tenants AFTER UPDATE ON tenants BEGIN
    INSERT INTO changes (table_name, row_key) SELECT 'tenants', OLD.name UNION SELECT 'tenants', NEW.name;
END;

CREATE TRIGGER delete_tenants AFTER DELETE ON tenants BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('tenants', OLD.name);
END;

CREATE TRIGGER insert_signing_keys AFTER INSERT ON signing_keys BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('signing_keys', NEW.kid);
END;

CREATE TRIGGER update_signing_keys AFTER UPDATE ON signing_keys BEGIN
    INSERT INTO changes (table_name, row_key) SELECT 'signing_keys', OLD.kid UNION SELECT 'signing_keys', NEW.kid;
END;

CREATE TRIGGER delete_signing_keys AFTER DELETE ON signing_keys BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('signing_keys', OLD.kid);
END;

CREATE TRIGGER insert_revocations AFTER INSERT ON revocations BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('revocations', NEW.kind || ':' || NEW.value);
END;

CREATE TRIGGER update_revocations AFTER UPDATE ON revocations BEGIN
    INSERT INTO changes (table_name, row_key)
        SELECT 'revocations', OLD.kind || ':' || OLD.value UNION SELECT 'revocations', NEW.kind || ':' || NEW.value;
END;

CREATE TRIGGER delete_revocations AFTER DELETE ON revocations BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('revocations', OLD.kind || ':' || OLD.value);
END;

-- Created keys and times of last use are not held in memory.
CREATE TRIGGER update_api_keys
    AFTER UPDATE OF tenant, id, digest, subject, kind, scopes, member_of, expires_at, revoked_at ON api_keys BEGIN
    INSERT INTO changes (table_name, row_key) SELECT 'api_keys', OLD.id UNION SELECT 'api_keys', NEW.id;
END;

CREATE TRIGGER delete_api_keys AFTER DELETE ON api_keys BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('api_keys', OLD.id);
END;

-- Session facts are never withdrawn by deletion.
CREATE TRIGGER insert_session_facts AFTER INSERT ON session_facts BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('session_facts', NEW.digest);
END;

CREATE TRIGGER update_session_facts AFTER UPDATE ON session_facts BEGIN
    INSERT INTO changes (table_name, row_key)
        SELECT 'session_facts', OLD.digest UNION SELECT 'session_facts', NEW.digest;
END;

-- A new pin awaits no acceptance.
CREATE TRIGGER insert_catalogue_pins AFTER INSERT ON catalogue_pins WHEN NEW.changed_at IS NOT NULL BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('catalogue_pins', NEW.namespace);
END;

CREATE TRIGGER update_catalogue_pins AFTER UPDATE ON catalogue_pins BEGIN
    INSERT INTO changes (table_name, row_key)
        SELECT 'catalogue_pins', OLD.namespace UNION SELECT 'catalogue_pins', NEW.namespace;
END;

CREATE TRIGGER delete_catalogue_pins AFTER DELETE ON catalogue_pins BEGIN
    INSERT INTO changes (table_name, row_key) VALUES ('catalogue_pins', OLD.namespace);
END;
