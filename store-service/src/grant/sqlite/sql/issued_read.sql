-- issued_read: the row of an issued grant. Outcomes: one row, or none.
--
-- ?1 issuer ?2 key_tenant ?3 grant_id
SELECT g.form, g.tenant, g.subject, g.bound, g.expires_at, g.leeway_ms, g.revoked_at, g.consumed_by_operation,
       g.archived_at
FROM issued_grants AS g WHERE g.issuer = ?1 AND g.key_tenant = ?2 AND g.grant_id = ?3
