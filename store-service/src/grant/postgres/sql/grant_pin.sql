-- grant_pin: writes down what grants are issued under, once, and says what is written.
--
-- Purpose: a changed leeway or lifetime could move a deadline past the time for which its record of
-- use is kept.
-- Isolation: READ COMMITTED; two statements' worth of snapshot: a row that another instance just
-- wrote may not be seen; then none comes back and the caller asks again.
-- Locks: the key of the policy. Outcomes: the row as written, or none.
--
-- $1 issuer $2 leeway version $3 form $4 key_by_tenant $5 leeway (ms) $6 longest lifetime (ms)
-- $7 issue-time skew (ms)
WITH pinned AS (
    INSERT INTO fencepost.grant_policies AS p
        (issuer, leeway_version, form, key_by_tenant, leeway_ms, lifetime_ms_max, iat_skew_ms, pinned_at)
    VALUES ($1::text, $2::text, $3::text, $4::bool, $5::int8, $6::int8, $7::int8, statement_timestamp())
    ON CONFLICT (issuer, leeway_version) DO NOTHING
    RETURNING p.form, p.key_by_tenant, p.leeway_ms, p.lifetime_ms_max, p.iat_skew_ms
)
SELECT p.form, p.key_by_tenant, p.leeway_ms, p.lifetime_ms_max, p.iat_skew_ms FROM pinned AS p
UNION ALL
SELECT p.form, p.key_by_tenant, p.leeway_ms, p.lifetime_ms_max, p.iat_skew_ms
FROM fencepost.grant_policies AS p
WHERE p.issuer = $1::text AND p.leeway_version = $2::text
  AND NOT EXISTS (SELECT FROM pinned)
