-- First version: the entries, and the identity of this database.
--
-- The columns of a state are filled exactly in that state. `until` is infinite for a claim: it
-- ends by a transition, never by time alone.
CREATE TABLE fencepost.meta (
    one      boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    store_id bytea   NOT NULL CHECK (octet_length(store_id) = 16)
);

CREATE TABLE fencepost.entries (
    key            text COLLATE "C" NOT NULL PRIMARY KEY,
    state          text        NOT NULL CHECK (state IN ('claimed', 'completed', 'unknown', 'released')),
    token          bytea       NOT NULL CHECK (octet_length(token) = 16),
    fence          bigint      NOT NULL CHECK (fence BETWEEN 1 AND 9007199254740991),
    scheme         text        NOT NULL,
    fingerprint    bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    scope          bytea       NOT NULL CHECK (octet_length(scope) = 16),
    dead_tokens    bytea[]     NOT NULL CHECK (cardinality(dead_tokens) <= 8),
    lease_until    timestamptz CHECK ((lease_until IS NOT NULL) = (state = 'claimed')),
    run_until      timestamptz CHECK ((run_until IS NOT NULL) = (state = 'claimed')),
    on_lost        text        CHECK ((on_lost IS NOT NULL) = (state = 'claimed') AND on_lost IN ('hold', 'rerun')),
    claim_ttl_ms   integer     CHECK ((claim_ttl_ms IS NOT NULL) = (state = 'claimed') AND claim_ttl_ms > 0),
    unknown_ttl_ms bigint      CHECK ((unknown_ttl_ms IS NOT NULL) = (state = 'claimed') AND unknown_ttl_ms > 0),
    until          timestamptz NOT NULL CHECK ((until = 'infinity') = (state = 'claimed')),
    cause          text        CHECK ((cause IS NOT NULL) = (state IN ('unknown', 'released'))),
    status         smallint    CHECK ((status IS NOT NULL) = (state = 'completed') AND status BETWEEN 200 AND 599),
    headers        bytea       CHECK ((headers IS NOT NULL) = (state = 'completed')),
    body           bytea       CHECK ((body IS NOT NULL) = (state = 'completed')),
    completed_at   timestamptz CHECK ((completed_at IS NOT NULL) = (state = 'completed')),
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);
