-- consumption_add: claims a grant's key. In the write lock, after consumption_read found none.
--
-- ?1 issuer ?2 key_tenant ?3 grant_id ?4 operation id (null: a revocation) ?5 now ?6 retain_until
INSERT INTO grant_consumptions (issuer, key_tenant, grant_id, operation_id, consumed_at, retain_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
