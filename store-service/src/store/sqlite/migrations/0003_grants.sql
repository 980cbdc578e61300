-- Third version: one-time grants, and the operations that they admit. Times are microseconds since
-- 1970, ids of operations lower-case text. See the PostgreSQL migration of the same name for what
-- the tables mean.
CREATE TABLE grant_policies (
    issuer          TEXT    NOT NULL,
    leeway_version  TEXT    NOT NULL,
    form            TEXT    NOT NULL CHECK (form IN ('token', 'row')),
    key_by_tenant   INTEGER NOT NULL,
    leeway_ms       INTEGER NOT NULL CHECK (leeway_ms >= 0),
    lifetime_ms_max INTEGER NOT NULL CHECK (lifetime_ms_max > 0),
    iat_skew_ms     INTEGER NOT NULL CHECK (iat_skew_ms >= 0),
    pinned_at       INTEGER NOT NULL,
    PRIMARY KEY (issuer, leeway_version)
) STRICT, WITHOUT ROWID;

CREATE TABLE issued_grants (
    issuer                TEXT    NOT NULL CHECK (issuer <> ''),
    key_tenant            TEXT    NOT NULL,
    grant_id              TEXT    NOT NULL CHECK (grant_id <> ''),
    form                  TEXT    NOT NULL CHECK (form IN ('row', 'log')),
    tenant                TEXT    NOT NULL,
    subject               TEXT    NOT NULL,
    bound                 TEXT    NOT NULL,
    issued_at             INTEGER NOT NULL,
    expires_at            INTEGER CHECK (form = 'log' OR expires_at IS NOT NULL),
    leeway_ms             INTEGER NOT NULL CHECK (leeway_ms >= 0),
    revoked_at            INTEGER,
    consumed_at           INTEGER CHECK (form = 'row' OR consumed_at IS NULL),
    consumed_by_operation TEXT,
    PRIMARY KEY (issuer, key_tenant, grant_id),
    CHECK ((consumed_at IS NULL) = (consumed_by_operation IS NULL)),
    CHECK (consumed_at IS NULL OR revoked_at IS NULL)
) STRICT, WITHOUT ROWID;

CREATE TABLE grant_consumptions (
    issuer       TEXT    NOT NULL CHECK (issuer <> ''),
    key_tenant   TEXT    NOT NULL,
    grant_id     TEXT    NOT NULL CHECK (grant_id <> ''),
    operation_id TEXT,
    consumed_at  INTEGER NOT NULL,
    retain_until INTEGER NOT NULL,
    PRIMARY KEY (issuer, key_tenant, grant_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX grant_consumptions_retain ON grant_consumptions (retain_until);

CREATE TABLE operations (
    operation_id     TEXT    NOT NULL PRIMARY KEY,
    issuer           TEXT    NOT NULL,
    key_tenant       TEXT    NOT NULL,
    grant_id         TEXT    NOT NULL,
    caller_namespace TEXT    NOT NULL,
    caller_id        TEXT    NOT NULL CHECK (caller_id <> ''),
    tenant           TEXT    NOT NULL,
    details_digest   BLOB    NOT NULL CHECK (length(details_digest) = 32),
    details          TEXT    NOT NULL,
    status           TEXT    NOT NULL
        CHECK (status IN ('admitted', 'succeeded', 'failed', 'unknown', 'needs_reconciliation')),
    reference        TEXT,
    owner_version    INTEGER NOT NULL CHECK (owner_version >= 1),
    lease_until      INTEGER NOT NULL,
    submit_by        INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    UNIQUE (issuer, key_tenant, grant_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX operations_stalled ON operations (lease_until) WHERE status IN ('admitted', 'unknown');

CREATE TABLE grant_audit (
    id         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    action     TEXT    NOT NULL CHECK (action IN ('issue', 'revoke')),
    outcome    TEXT    NOT NULL,
    issuer     TEXT    NOT NULL,
    key_tenant TEXT    NOT NULL,
    grant_id   TEXT    NOT NULL,
    reason     TEXT    NOT NULL
) STRICT;
