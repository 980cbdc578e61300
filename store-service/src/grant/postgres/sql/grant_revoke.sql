-- grant_revoke: withdraws a grant that is a token, by claiming its key without an operation.
--
-- Purpose: contends with admissions for the same key, so the database orders them and the first to
-- commit wins. The caller has proof that the grant was issued: an insert would succeed for any key.
-- Invariants: the row is kept as long as the grant could be admitted: to its trusted expiry plus
-- leeway, or, where that is not known, for the longest time that any grant may live, from the
-- writing of the row.
-- Isolation: READ COMMITTED, one statement in autocommit. Locks: the key of the consumption.
-- Outcomes: one row; `revoked`: now. Not: the key was claimed before, and grant_report says by what.
-- The audit row says both.
--
-- $1 issuer $2 key_tenant $3 grant_id $4 expires_at (null: not known) $5 leeway (ms) $6 retention
-- without expiry (ms) $7 actor $8 reason
WITH revoked AS (
    INSERT INTO fencepost.grant_consumptions AS c
        (issuer, key_tenant, grant_id, operation_id, consumed_at, retain_until)
    SELECT $1::text, $2::text, $3::text, NULL, statement_timestamp(),
           coalesce($4::timestamptz + $5::int8 * interval '1 millisecond',
                    clock_timestamp() + $6::int8 * interval '1 millisecond')
    ON CONFLICT (issuer, key_tenant, grant_id) DO NOTHING
    RETURNING c.grant_id
),
audited AS (
    INSERT INTO fencepost.grant_audit (at, actor, action, outcome, issuer, key_tenant, grant_id, reason)
    SELECT clock_timestamp(), $7::text, 'revoke',
           CASE WHEN EXISTS (SELECT FROM revoked) THEN 'revoked' ELSE 'nothing_changed' END,
           $1::text, $2::text, $3::text, $8::text
)
SELECT EXISTS (SELECT FROM revoked) AS revoked
