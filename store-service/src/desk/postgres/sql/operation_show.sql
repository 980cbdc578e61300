-- operation_show: one operation, for people.
--
-- Isolation: any. Locks: none. Outcomes: one row, or none.
--
-- $1 operation id
SELECT o.operation_id::text AS operation_id, o.issuer, o.key_tenant, o.grant_id, o.caller_namespace, o.caller_id,
       o.tenant, o.details, o.status, o.reference, o.owner_version, o.lease_until, o.submit_by, o.created_at,
       o.updated_at, clock_timestamp() AS now
FROM fencepost.operations AS o
WHERE o.operation_id = $1::text::uuid
