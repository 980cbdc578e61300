-- Seventh version: an operation keeps the answer of its run, and issued rows can be archived. See the
-- PostgreSQL migration of the same name for what the columns mean.
ALTER TABLE operations ADD COLUMN answer_status INTEGER
    CHECK (answer_status IS NULL OR answer_status BETWEEN 200 AND 599 AND status IN ('succeeded', 'failed'));
ALTER TABLE operations ADD COLUMN answer_headers BLOB
    CHECK ((answer_status IS NULL) = (answer_headers IS NULL));
ALTER TABLE operations ADD COLUMN answer_body BLOB
    CHECK ((answer_status IS NULL) = (answer_body IS NULL));

ALTER TABLE issued_grants ADD COLUMN archived_at INTEGER
    CHECK (archived_at IS NULL OR form = 'row' AND tenant = '' AND subject = '' AND bound = '{}');
CREATE INDEX issued_grants_archive ON issued_grants (expires_at) WHERE form = 'row' AND archived_at IS NULL;

CREATE TABLE grant_archivals (
    id           INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at           INTEGER NOT NULL,
    issuer       TEXT    NOT NULL,
    archived     INTEGER NOT NULL CHECK (archived > 0),
    used         INTEGER NOT NULL CHECK (used BETWEEN 0 AND archived),
    last_expired INTEGER NOT NULL
) STRICT;
CREATE TRIGGER grant_archivals_no_update BEFORE UPDATE ON grant_archivals
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
CREATE TRIGGER grant_archivals_no_delete BEFORE DELETE ON grant_archivals
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
-- REPLACE deletes without asking the trigger above.
CREATE TRIGGER grant_archivals_no_replace BEFORE INSERT ON grant_archivals
WHEN EXISTS (SELECT 1 FROM grant_archivals WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'the audit only grows');
END;
