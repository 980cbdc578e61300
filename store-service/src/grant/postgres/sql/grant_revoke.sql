-- grant_revoke: withdraws a grant that is a token, by claiming its key without an operation.
--
-- Purpose: contends with admissions for the same key, so the database orders them and the first to
-- commit wins. The caller has proof that the grant was issued: an insert would succeed for any key.
-- Invariants: the row is kept as long as the grant could be admitted: to its expiry plus leeway,
-- where the token itself was seen. Where it was not, an expiry that was noted at its issue is only
-- a hint, and its leeway may be that of any version: kept to the later of that expiry plus the
-- longest leeway, and of the longest time that any grant may live, from the writing of the row; by
-- what is pinned for the issuer as well as by what this instance knows.
-- Isolation: READ COMMITTED, one statement in autocommit. Locks: the key of the consumption.
-- Outcomes: one row; `revoked`: now. Not: the key was claimed before, and grant_report says by what.
-- The audit row says both.
--
-- $1 issuer $2 key_tenant $3 grant_id $4 expires_at (null: not known) $5 leeway (ms) $6 retention
-- without the token (ms; null: it was seen) $7 actor $8 reason
WITH pinned AS (
    SELECT coalesce(max(p.leeway_ms), 0) AS leeway_ms,
           coalesce(max(p.lifetime_ms_max + p.iat_skew_ms), 0) AS lifetime_ms
    FROM fencepost.grant_policies AS p
    WHERE p.issuer = $1::text
),
revoked AS (
    INSERT INTO fencepost.grant_consumptions AS c
        (issuer, key_tenant, grant_id, operation_id, consumed_at, retain_until)
    SELECT $1::text, $2::text, $3::text, NULL, statement_timestamp(),
           CASE WHEN $6::int8 IS NULL THEN $4::timestamptz + $5::int8 * interval '1 millisecond'
                -- An expiry that is null is left out of `greatest`.
                ELSE greatest($4::timestamptz + greatest($5::int8, p.leeway_ms) * interval '1 millisecond',
                              clock_timestamp() + greatest($6::int8, p.lifetime_ms + p.leeway_ms)
                                                  * interval '1 millisecond')
           END
    FROM pinned AS p
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
