-- Sixth version: what people did to grants, to whole scopes and to everything at once, and who looked at
-- answers. It only grows, as the audit of entries does. `subject` names what it was done to;
-- `version_before` is what the person saw.
CREATE TABLE desk_audit (
    id             INTEGER PRIMARY KEY,
    at             INTEGER NOT NULL,
    who            TEXT    NOT NULL CHECK (who <> ''),
    action         TEXT    NOT NULL CHECK (action <> ''),
    subject        TEXT    NOT NULL CHECK (subject <> ''),
    version_before TEXT    NOT NULL,
    state_before   TEXT    NOT NULL,
    state_after    TEXT    NOT NULL,
    reason         TEXT    NOT NULL CHECK (reason <> '')
) STRICT;
CREATE INDEX desk_audit_subject ON desk_audit (subject, id);
CREATE TRIGGER desk_audit_no_update BEFORE UPDATE ON desk_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
CREATE TRIGGER desk_audit_no_delete BEFORE DELETE ON desk_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
-- REPLACE deletes without asking the trigger above.
CREATE TRIGGER desk_audit_no_replace BEFORE INSERT ON desk_audit
WHEN EXISTS (SELECT 1 FROM desk_audit WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
CREATE INDEX operations_to_reconcile ON operations (operation_id) WHERE status = 'needs_reconciliation';

-- After a restored backup: see the PostgreSQL migration of the same name.
CREATE TABLE holds (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    prefix     TEXT,
    since      INTEGER NOT NULL,
    keys_until INTEGER,
    grants     INTEGER NOT NULL,
    began_at   INTEGER NOT NULL,
    began_by   TEXT    NOT NULL CHECK (began_by <> ''),
    reason     TEXT    NOT NULL CHECK (reason <> ''),
    lifted_at  INTEGER,
    CHECK (since <= began_at)
) STRICT;
