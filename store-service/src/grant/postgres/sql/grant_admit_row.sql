-- grant_admit_row: claims the single use of a grant that is a row, and records the operation.
--
-- Purpose: as grant_admit; here the row's lock decides. A second statement waits for the first and
-- then looks at the row again. A row that is not there, or archived, admits
-- nothing, so rows may be archived.
-- Invariants: as grant_admit. Expiry and leeway are the row's own.
-- Isolation: READ COMMITTED, one statement in autocommit.
-- Locks: the row of issued_grants, then the operation's id and grant key.
-- Outcomes: one row. owner_version set: admitted. Not set: nothing was, and `late` says whether the
-- row's deadline had passed when the statement began. Unique violations as in grant_admit.
--
-- $1 issuer $2 key_tenant $3 grant_id $4 operation id $5 caller namespace $6 caller $7 tenant
-- $8 details digest $9 details $10 lease (ms) $11 submission window (ms) $12 first owner version $13 subject of the audit
-- about it
WITH held AS MATERIALIZED (
    -- After a restored backup: see grant_admit.
    SELECT EXISTS (
        SELECT FROM fencepost.holds AS h
        JOIN fencepost.issued_grants AS i ON h.since >= i.issued_at
        WHERE h.lifted_at IS NULL AND h.grants
          AND i.issuer = $1::text AND i.key_tenant = $2::text AND i.grant_id = $3::text
          AND NOT EXISTS (SELECT FROM fencepost.desk_audit AS l
                          WHERE l.subject = $13::text AND l.action = 'release_grant' AND l.at >= h.began_at)
    ) AS held
),
claim AS (
    UPDATE fencepost.issued_grants AS g
    SET consumed_at = statement_timestamp(), consumed_by_operation = $4::text::uuid
    WHERE g.issuer = $1::text AND g.key_tenant = $2::text AND g.grant_id = $3::text
      AND g.form = 'row'
      AND g.consumed_at IS NULL
      AND g.revoked_at IS NULL
      AND g.archived_at IS NULL
      AND g.expires_at + g.leeway_ms * interval '1 millisecond' > statement_timestamp()
      AND NOT (SELECT h.held FROM held AS h)
    RETURNING g.issuer, g.key_tenant, g.grant_id
),
operation AS (
    INSERT INTO fencepost.operations AS o
        (operation_id, issuer, key_tenant, grant_id, caller_namespace, caller_id, tenant, details_digest, details,
         status, reference, owner_version, lease_until, submit_by, created_at, updated_at)
    SELECT $4::text::uuid, c.issuer, c.key_tenant, c.grant_id, $5::text, $6::text, $7::text, $8::bytea,
           $9::text, 'admitted', NULL, $12::int4, n.now + $10::int8 * interval '1 millisecond',
           n.now + $11::int8 * interval '1 millisecond', n.now, n.now
    FROM claim AS c CROSS JOIN LATERAL (SELECT clock_timestamp() AS now, c.grant_id OFFSET 0) AS n
    RETURNING o.owner_version, o.lease_until, o.submit_by
)
SELECT coalesce((SELECT g.expires_at + g.leeway_ms * interval '1 millisecond' <= statement_timestamp()
                 FROM fencepost.issued_grants AS g
                 WHERE g.issuer = $1::text AND g.key_tenant = $2::text AND g.grant_id = $3::text), false) AS late,
       (SELECT h.held FROM held AS h) AS held, o.owner_version,
       (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
       (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
FROM (SELECT 1) AS one LEFT JOIN operation AS o ON true
