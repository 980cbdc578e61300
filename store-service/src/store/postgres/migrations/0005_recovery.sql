-- Fifth version: recovery of operations and of held keys, and what was done about them.

-- Look-ups that were answered and settled nothing. Those that got no answer are not counted: an
-- outage of the provider must not send every operation to a person.
ALTER TABLE fencepost.operations
    ADD COLUMN recovery_attempts integer NOT NULL DEFAULT 0 CHECK (recovery_attempts >= 0);

-- What was done about an operation, by recovery and by people. Only grows.
CREATE TABLE fencepost.operation_events (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL,
    operation_id  uuid        NOT NULL,
    owner_version integer     NOT NULL,
    actor         text        NOT NULL CHECK (actor <> ''),
    step          text        NOT NULL CHECK (step <> ''),
    result        text        NOT NULL,
    status        text        NOT NULL
        CHECK (status IN ('admitted', 'succeeded', 'failed', 'unknown', 'needs_reconciliation')),
    detail        text        NOT NULL
);
CREATE INDEX operation_events_operation ON fencepost.operation_events (operation_id, id);
CREATE TRIGGER operation_events_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON fencepost.operation_events
    FOR EACH STATEMENT EXECUTE FUNCTION fencepost.audit_only_grows();

-- The recovery of held keys: one row for each that was looked at, for the version of its entry that
-- was seen. `turn` grows with every taking, so that one instance at a time works on a key. A row with
-- `for_person` is not looked at any more: no machine releases a held key.
CREATE TABLE fencepost.held_keys (
    key                text COLLATE "C" NOT NULL PRIMARY KEY,
    version_fence      bigint      NOT NULL,
    version_updated_at timestamptz NOT NULL,
    turn               bigint      NOT NULL CHECK (turn >= 1),
    attempts           integer     NOT NULL CHECK (attempts >= 0),
    next_at            timestamptz NOT NULL,
    result             text        NOT NULL,
    for_person         text        CHECK (for_person <> ''),
    marked_at          timestamptz CHECK ((marked_at IS NULL) = (for_person IS NULL)),
    taken_by           text        NOT NULL
);
CREATE INDEX held_keys_for_person ON fencepost.held_keys (key) WHERE for_person IS NOT NULL;
