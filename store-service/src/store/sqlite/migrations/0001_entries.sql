-- First version: the entries, and the identity of this database.
--
-- Times are microseconds since 1970. The columns of a state are filled exactly in that state.
CREATE TABLE meta (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    store_id BLOB NOT NULL CHECK (length(store_id) = 16)
) STRICT;

CREATE TABLE entries (
    key            TEXT    NOT NULL PRIMARY KEY,
    state          TEXT    NOT NULL CHECK (state IN ('claimed', 'completed', 'unknown', 'released')),
    token          BLOB    NOT NULL CHECK (length(token) = 16),
    fence          INTEGER NOT NULL CHECK (fence >= 1),
    scheme         TEXT    NOT NULL,
    fingerprint    BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    scope          BLOB    NOT NULL CHECK (length(scope) = 16),
    -- Up to 8 tokens of 16 bytes, oldest first.
    dead_tokens    BLOB    NOT NULL CHECK (length(dead_tokens) % 16 = 0 AND length(dead_tokens) <= 128),
    lease_until    INTEGER CHECK ((lease_until IS NOT NULL) = (state = 'claimed')),
    run_until      INTEGER CHECK ((run_until IS NOT NULL) = (state = 'claimed')),
    on_lost        TEXT    CHECK ((on_lost IS NOT NULL) = (state = 'claimed') AND on_lost IN ('hold', 'rerun')),
    claim_ttl_ms   INTEGER CHECK ((claim_ttl_ms IS NOT NULL) = (state = 'claimed')),
    unknown_ttl_ms INTEGER CHECK ((unknown_ttl_ms IS NOT NULL) = (state = 'claimed')),
    until          INTEGER CHECK ((until IS NULL) = (state = 'claimed')),
    cause          TEXT    CHECK ((cause IS NOT NULL) = (state IN ('unknown', 'released'))),
    status         INTEGER CHECK ((status IS NOT NULL) = (state = 'completed')),
    headers        BLOB    CHECK ((headers IS NOT NULL) = (state = 'completed')),
    body           BLOB    CHECK ((body IS NOT NULL) = (state = 'completed')),
    completed_at   INTEGER CHECK ((completed_at IS NOT NULL) = (state = 'completed')),
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;
