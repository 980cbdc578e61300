-- Fourth version: what people did to entries. The audit only grows.
CREATE TABLE entry_audit (
    id                 INTEGER PRIMARY KEY,
    at                 INTEGER NOT NULL,
    who                TEXT    NOT NULL CHECK (who <> ''),
    action             TEXT    NOT NULL CHECK (action IN ('release', 'settle_not_run', 'settle_answer')),
    key                TEXT    NOT NULL,
    version_fence      INTEGER NOT NULL,
    version_updated_at INTEGER NOT NULL,
    state_before       TEXT    NOT NULL,
    state_after        TEXT    NOT NULL,
    forced             INTEGER NOT NULL,
    reason             TEXT    NOT NULL CHECK (reason <> '')
) STRICT;
CREATE INDEX entry_audit_key ON entry_audit (key, id);
CREATE TRIGGER entry_audit_no_update BEFORE UPDATE ON entry_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
CREATE TRIGGER entry_audit_no_delete BEFORE DELETE ON entry_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
-- REPLACE deletes without asking the trigger above.
CREATE TRIGGER entry_audit_no_replace BEFORE INSERT ON entry_audit
WHEN EXISTS (SELECT 1 FROM entry_audit WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
CREATE INDEX entries_unknown ON entries (key) WHERE state = 'unknown';
