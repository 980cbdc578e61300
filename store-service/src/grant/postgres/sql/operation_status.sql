-- operation_status: one operation. Who may see it is decided by the caller, who compares.
--
-- Isolation: READ COMMITTED. Locks: none. Outcomes: one row, or none.
--
-- $1 operation id
SELECT o.operation_id::text AS operation_id, o.issuer, o.key_tenant, o.grant_id, o.caller_namespace, o.caller_id,
       o.tenant, o.details_digest, o.details, o.status, o.reference, o.owner_version,
       (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
       (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
FROM fencepost.operations AS o
WHERE o.operation_id = $1::text::uuid
