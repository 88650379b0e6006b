-- Announces changed rows to the processes that hold them in memory. Being triggers, they cover writers of every version.
-- The arguments are the key columns. Duplicate notifications of a transaction are sent once. A payload must be shorter
-- than 8000 bytes: a longer key is left out, and the whole table is loaded.
CREATE FUNCTION announce_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed_row jsonb;
    changed_key text;
    payload text;
BEGIN
    FOR changed_row IN
        SELECT to_jsonb(OLD) WHERE TG_OP <> 'INSERT' UNION ALL SELECT to_jsonb(NEW) WHERE TG_OP <> 'DELETE'
    LOOP
        SELECT string_agg(changed_row ->> column_name, ':' ORDER BY position) INTO changed_key
            FROM unnest(TG_ARGV) WITH ORDINALITY AS arguments (column_name, position);
        payload := jsonb_build_object('table', TG_TABLE_NAME, 'key', changed_key)::text;
        IF octet_length(payload) >= 8000 THEN
            payload := jsonb_build_object('table', TG_TABLE_NAME, 'key', NULL)::text;
        END IF;
        PERFORM pg_notify('gatehouse', payload);
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER announce_tenants AFTER INSERT OR UPDATE OR DELETE ON tenants
    FOR EACH ROW EXECUTE FUNCTION announce_change('name');
CREATE TRIGGER announce_signing_keys AFTER INSERT OR UPDATE OR DELETE ON signing_keys
    FOR EACH ROW EXECUTE FUNCTION announce_change('kid');
CREATE TRIGGER announce_revocations AFTER INSERT OR UPDATE OR DELETE ON revocations
    FOR EACH ROW EXECUTE FUNCTION announce_change('kind', 'value');

-- Created keys and times of last use are not held in memory.
CREATE TRIGGER announce_api_keys
    AFTER UPDATE OF tenant, id, digest, subject, kind, scopes, member_of, expires_at, revoked_at OR DELETE ON api_keys
    FOR EACH ROW EXECUTE FUNCTION announce_change('id');

-- Session facts are never withdrawn by deletion.
CREATE TRIGGER announce_session_facts AFTER INSERT OR UPDATE ON session_facts
    FOR EACH ROW EXECUTE FUNCTION announce_change('digest');

-- A new pin awaits no acceptance.
CREATE TRIGGER announce_catalogue_pins AFTER UPDATE OR DELETE ON catalogue_pins
    FOR EACH ROW EXECUTE FUNCTION announce_change('namespace');
CREATE TRIGGER announce_new_catalogue_pins AFTER INSERT ON catalogue_pins
    FOR EACH ROW WHEN (NEW.changed_at IS NOT NULL) EXECUTE FUNCTION announce_change('namespace');
