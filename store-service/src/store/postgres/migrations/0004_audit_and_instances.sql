-- Fourth version: what people did to entries, and which instances there are.
--
-- The audit only grows: not even a defect of the service changes what it says.
CREATE TABLE fencepost.entry_audit (
    id                 bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at                 timestamptz NOT NULL,
    who                text        NOT NULL CHECK (who <> ''),
    action             text        NOT NULL CHECK (action IN ('release', 'settle_not_run', 'settle_answer')),
    key                text COLLATE "C" NOT NULL,
    version_fence      bigint      NOT NULL,
    version_updated_at timestamptz NOT NULL,
    state_before       text        NOT NULL,
    state_after        text        NOT NULL,
    forced             boolean     NOT NULL,
    reason             text        NOT NULL CHECK (reason <> '')
);
CREATE INDEX entry_audit_key ON fencepost.entry_audit (key, id);

CREATE FUNCTION fencepost.audit_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit only grows';
END
$$;
CREATE TRIGGER entry_audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON fencepost.entry_audit
    FOR EACH STATEMENT EXECUTE FUNCTION fencepost.audit_only_grows();

-- People look for these first.
CREATE INDEX entries_unknown ON fencepost.entries (key) WHERE state = 'unknown';

-- When each instance last reached the database: an instance that could not had callers that could
-- not renew through it.
CREATE TABLE fencepost.instances (
    instance text COLLATE "C" NOT NULL PRIMARY KEY,
    beat_at  timestamptz NOT NULL
);
