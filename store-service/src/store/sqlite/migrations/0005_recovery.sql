-- Fifth version: recovery of operations and of held keys, and what was done about them. See the
-- PostgreSQL migration of the same name for what the tables mean.
ALTER TABLE operations ADD COLUMN recovery_attempts INTEGER NOT NULL DEFAULT 0 CHECK (recovery_attempts >= 0);

CREATE TABLE operation_events (
    id            INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at            INTEGER NOT NULL,
    operation_id  TEXT    NOT NULL,
    owner_version INTEGER NOT NULL,
    actor         TEXT    NOT NULL CHECK (actor <> ''),
    step          TEXT    NOT NULL CHECK (step <> ''),
    result        TEXT    NOT NULL,
    status        TEXT    NOT NULL
        CHECK (status IN ('admitted', 'succeeded', 'failed', 'unknown', 'needs_reconciliation')),
    detail        TEXT    NOT NULL
) STRICT;
CREATE INDEX operation_events_operation ON operation_events (operation_id, id);
CREATE TRIGGER operation_events_no_update BEFORE UPDATE ON operation_events
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
CREATE TRIGGER operation_events_no_delete BEFORE DELETE ON operation_events
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
-- REPLACE deletes without asking the trigger above.
CREATE TRIGGER operation_events_no_replace BEFORE INSERT ON operation_events
WHEN EXISTS (SELECT 1 FROM operation_events WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;

CREATE TABLE held_keys (
    key                TEXT    NOT NULL PRIMARY KEY,
    version_fence      INTEGER NOT NULL,
    version_updated_at INTEGER NOT NULL,
    turn               INTEGER NOT NULL CHECK (turn >= 1),
    attempts           INTEGER NOT NULL CHECK (attempts >= 0),
    next_at            INTEGER NOT NULL,
    result             TEXT    NOT NULL,
    for_person         TEXT    CHECK (for_person <> ''),
    marked_at          INTEGER CHECK ((marked_at IS NULL) = (for_person IS NULL)),
    taken_by           TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX held_keys_for_person ON held_keys (key) WHERE for_person IS NOT NULL;
