-- operation_list: operations in the order of their ids, for people.
--
-- ?1 statuses as a JSON list ?2 issuer ?3 tenant ?4 caller's namespace ?5 caller ?6 admitted at or
-- before ?7 ids behind this one ?8 id of the only one (each null: any) ?9 limit
SELECT o.operation_id, o.issuer, o.key_tenant, o.grant_id, o.caller_namespace, o.caller_id, o.tenant, o.details,
       o.status, o.reference, o.owner_version, o.lease_until, o.submit_by, o.created_at, o.updated_at
FROM operations AS o
WHERE (?1 IS NULL OR o.status IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR o.issuer = ?2)
  AND (?3 IS NULL OR o.tenant = ?3)
  AND (?4 IS NULL OR o.caller_namespace = ?4)
  AND (?5 IS NULL OR o.caller_id = ?5)
  AND (?6 IS NULL OR o.created_at <= ?6)
  AND (?7 IS NULL OR o.operation_id > ?7)
  AND (?8 IS NULL OR o.operation_id = ?8)
ORDER BY o.operation_id
LIMIT ?9
