-- Sixth version: what people did to grants, to whole scopes and to everything at once, and who looked at
-- answers. It only grows, as the audit of entries does. `subject` names what it was done to;
-- `version_before` is what the person saw.
CREATE TABLE fencepost.desk_audit (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL,
    who            text        NOT NULL CHECK (who <> ''),
    action         text        NOT NULL CHECK (action <> ''),
    subject        text COLLATE "C" NOT NULL CHECK (subject <> ''),
    version_before text        NOT NULL,
    state_before   text        NOT NULL,
    state_after    text        NOT NULL,
    reason         text        NOT NULL CHECK (reason <> '')
);
CREATE INDEX desk_audit_subject ON fencepost.desk_audit (subject, id);
CREATE TRIGGER desk_audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON fencepost.desk_audit
    FOR EACH STATEMENT EXECUTE FUNCTION fencepost.audit_only_grows();

-- People look for these first.
CREATE INDEX operations_to_reconcile ON fencepost.operations (operation_id) WHERE status = 'needs_reconciliation';

-- After a restored backup: what may have been done in the lost window is held. Keys that begin with
-- `prefix:` (null: all) and have no answer are held until `keys_until` (null: they are not); claims
-- older than `since` are never run again; grants issued until `since` are not admitted.
CREATE TABLE fencepost.holds (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prefix     text COLLATE "C",
    since      timestamptz NOT NULL,
    keys_until timestamptz,
    grants     boolean     NOT NULL,
    began_at   timestamptz NOT NULL,
    began_by   text        NOT NULL CHECK (began_by <> ''),
    reason     text        NOT NULL CHECK (reason <> ''),
    lifted_at  timestamptz,
    CHECK (since <= began_at),
    CHECK (keys_until IS NULL OR keys_until < 'infinity')
);
