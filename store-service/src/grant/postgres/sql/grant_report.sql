-- grant_report: what is known about a grant after an attempt that claimed nothing.
--
-- Purpose: reports only. A new statement with a snapshot of its own: it shows the state after the
-- attempt, not at its instant, and nothing it says admits anything.
-- Isolation: READ COMMITTED. Locks: none.
-- Outcomes: one row; the columns of the operation are null where the key was not spent for one.
--
-- $1 issuer $2 key_tenant $3 grant_id
SELECT g.issuer IS NOT NULL AS issued,
       coalesce(g.revoked_at IS NOT NULL, false) OR (c.issuer IS NOT NULL AND c.operation_id IS NULL) AS revoked,
       coalesce(g.consumed_at IS NOT NULL, false) OR c.operation_id IS NOT NULL AS used,
       o.operation_id::text AS operation_id, o.issuer, o.key_tenant, o.grant_id, o.caller_namespace, o.caller_id,
       o.tenant, o.details_digest, o.details, o.status, o.reference, o.owner_version,
       (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
       (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
FROM (SELECT 1) AS one
LEFT JOIN fencepost.issued_grants AS g
       ON g.issuer = $1::text AND g.key_tenant = $2::text AND g.grant_id = $3::text
LEFT JOIN fencepost.grant_consumptions AS c
       ON c.issuer = $1::text AND c.key_tenant = $2::text AND c.grant_id = $3::text
LEFT JOIN fencepost.operations AS o ON o.operation_id = coalesce(c.operation_id, g.consumed_by_operation)
