-- Seventh version: an operation keeps the answer of its run, and issued rows can be archived.

-- Written once, with a final outcome, and never changed: what a repeated call is given again.
-- Headers are the protocol's header block.
ALTER TABLE fencepost.operations
    ADD COLUMN answer_status  integer,
    ADD COLUMN answer_headers bytea,
    ADD COLUMN answer_body    bytea,
    ADD CONSTRAINT operations_answer_whole
        CHECK ((answer_status IS NULL) = (answer_headers IS NULL) AND (answer_status IS NULL) = (answer_body IS NULL)),
    ADD CONSTRAINT operations_answer_final
        CHECK (answer_status IS NULL OR answer_status BETWEEN 200 AND 599 AND status IN ('succeeded', 'failed'));

-- An archived row has lost what it bound, keeps its key, its times and what became of it, and is
-- never deleted: so its id can't be issued again, and no statement can claim it, however late.
ALTER TABLE fencepost.issued_grants
    ADD COLUMN archived_at timestamptz,
    ADD CONSTRAINT issued_grants_archived
        CHECK (archived_at IS NULL OR form = 'row' AND tenant = '' AND subject = '' AND bound = '{}');
CREATE INDEX issued_grants_archive ON fencepost.issued_grants (expires_at)
    WHERE form = 'row' AND archived_at IS NULL;

-- What was archived: one row for each batch and issuer. Only grows.
CREATE TABLE fencepost.grant_archivals (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL,
    issuer       text COLLATE "C" NOT NULL,
    archived     bigint      NOT NULL CHECK (archived > 0),
    used         bigint      NOT NULL CHECK (used BETWEEN 0 AND archived),
    last_expired timestamptz NOT NULL
);
CREATE TRIGGER grant_archivals_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON fencepost.grant_archivals
    FOR EACH STATEMENT EXECUTE FUNCTION fencepost.audit_only_grows();
