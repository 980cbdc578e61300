-- grant_issued: the row of an issued grant. Its contents never change but for its use, its
-- revocation and, after its end, its archiving, so what is compared with it here still holds when it is claimed.
--
-- Isolation: READ COMMITTED. Locks: none. Outcomes: one row, or none.
--
-- $1 issuer $2 key_tenant $3 grant_id
SELECT g.form, g.tenant, g.subject, g.bound, g.expires_at, g.leeway_ms, g.archived_at IS NOT NULL AS archived
FROM fencepost.issued_grants AS g
WHERE g.issuer = $1::text AND g.key_tenant = $2::text AND g.grant_id = $3::text
