-- operation_read: one operation. Outcomes: one row, or none.
--
-- ?1 operation id
SELECT o.operation_id, o.issuer, o.key_tenant, o.grant_id, o.caller_namespace, o.caller_id, o.tenant,
       o.details_digest, o.details, o.status, o.reference, o.owner_version, o.lease_until, o.submit_by
FROM operations AS o WHERE o.operation_id = ?1
