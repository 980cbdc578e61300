-- recovery_due: stalled operations, those first whose lease ended first. In the write lock.
--
-- ?1 issuers as a JSON list (null: any) ?2 admitted at the latest at (null: any time) ?3 now ?4 limit
SELECT operation_id, recovery_attempts, created_at
FROM operations
WHERE status IN ('admitted', 'unknown')
  AND lease_until < ?3
  AND (?1 IS NULL OR issuer IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR created_at <= ?2)
ORDER BY lease_until
LIMIT ?4
