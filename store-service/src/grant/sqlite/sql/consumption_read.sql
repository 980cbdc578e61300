-- consumption_read: who claimed a grant's key. In the write lock. Outcomes: one row, or none.
--
-- ?1 issuer ?2 key_tenant ?3 grant_id
SELECT c.operation_id FROM grant_consumptions AS c
WHERE c.issuer = ?1 AND c.key_tenant = ?2 AND c.grant_id = ?3
