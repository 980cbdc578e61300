-- Third version: one-time grants, and the operations that they admit.
--
-- A grant is named by (issuer, key_tenant, grant_id). `key_tenant` is empty where an issuer's ids
-- are unique by themselves, and the tenant where they are unique in a tenant only: put into the key
-- of the first kind, it would allow one use for each tenant.

-- What must not change while a grant issued under it can still be admitted. Written once for each
-- issuer and leeway version; a start with other values is refused.
CREATE TABLE fencepost.grant_policies (
    issuer          text COLLATE "C" NOT NULL,
    leeway_version  text COLLATE "C" NOT NULL,
    form            text        NOT NULL CHECK (form IN ('token', 'row')),
    key_by_tenant   boolean     NOT NULL,
    leeway_ms       bigint      NOT NULL CHECK (leeway_ms >= 0),
    lifetime_ms_max bigint      NOT NULL CHECK (lifetime_ms_max > 0),
    iat_skew_ms     bigint      NOT NULL CHECK (iat_skew_ms >= 0),
    pinned_at       timestamptz NOT NULL,
    PRIMARY KEY (issuer, leeway_version)
);

-- Grants as rows. A row of the form 'log' only proves that its id was issued; the grant itself is a
-- token, and its expiry may not be known here.
CREATE TABLE fencepost.issued_grants (
    issuer                text COLLATE "C" NOT NULL CHECK (issuer <> ''),
    key_tenant            text COLLATE "C" NOT NULL,
    grant_id              text COLLATE "C" NOT NULL CHECK (grant_id <> ''),
    form                  text        NOT NULL CHECK (form IN ('row', 'log')),
    tenant                text        NOT NULL,
    subject               text        NOT NULL,
    bound                 text        NOT NULL,
    issued_at             timestamptz NOT NULL,
    expires_at            timestamptz CHECK (form = 'log' OR expires_at IS NOT NULL),
    leeway_ms             bigint      NOT NULL CHECK (leeway_ms >= 0),
    revoked_at            timestamptz,
    consumed_at           timestamptz CHECK (form = 'row' OR consumed_at IS NULL),
    consumed_by_operation uuid,
    PRIMARY KEY (issuer, key_tenant, grant_id),
    CHECK ((consumed_at IS NULL) = (consumed_by_operation IS NULL)),
    CHECK (consumed_at IS NULL OR revoked_at IS NULL)
);

-- One row for each claimed key of a grant that is a token: by an admission, or by a revocation
-- (then without an operation). Nothing but the cleanup deletes here.
CREATE TABLE fencepost.grant_consumptions (
    issuer       text COLLATE "C" NOT NULL CHECK (issuer <> ''),
    key_tenant   text COLLATE "C" NOT NULL,
    grant_id     text COLLATE "C" NOT NULL CHECK (grant_id <> ''),
    operation_id uuid,
    consumed_at  timestamptz NOT NULL,
    retain_until timestamptz NOT NULL,
    PRIMARY KEY (issuer, key_tenant, grant_id)
);
CREATE INDEX grant_consumptions_retain ON fencepost.grant_consumptions (retain_until);

-- What was admitted. Kept: the cleanup of consumptions never touches it.
CREATE TABLE fencepost.operations (
    operation_id     uuid        NOT NULL,
    issuer           text COLLATE "C" NOT NULL,
    key_tenant       text COLLATE "C" NOT NULL,
    grant_id         text COLLATE "C" NOT NULL,
    caller_namespace text COLLATE "C" NOT NULL,
    caller_id        text COLLATE "C" NOT NULL CHECK (caller_id <> ''),
    tenant           text COLLATE "C" NOT NULL,
    details_digest   bytea       NOT NULL CHECK (octet_length(details_digest) = 32),
    details          text        NOT NULL,
    status           text        NOT NULL
        CHECK (status IN ('admitted', 'succeeded', 'failed', 'unknown', 'needs_reconciliation')),
    reference        text,
    owner_version    integer     NOT NULL CHECK (owner_version >= 1),
    lease_until      timestamptz NOT NULL,
    submit_by        timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    CONSTRAINT operations_pkey PRIMARY KEY (operation_id),
    -- A second barrier only: operations may be archived, and revocations have none.
    CONSTRAINT operations_grant_key UNIQUE (issuer, key_tenant, grant_id)
);
CREATE INDEX operations_stalled ON fencepost.operations (lease_until) WHERE status IN ('admitted', 'unknown');

-- Privileged writes, appended and never changed.
CREATE TABLE fencepost.grant_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text        NOT NULL,
    action     text        NOT NULL CHECK (action IN ('issue', 'revoke')),
    outcome    text        NOT NULL,
    issuer     text COLLATE "C" NOT NULL,
    key_tenant text COLLATE "C" NOT NULL,
    grant_id   text COLLATE "C" NOT NULL,
    reason     text        NOT NULL
);
