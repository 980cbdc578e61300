-- operation_clash: is there an operation with this id, or of this grant? In the write lock.
--
-- ?1 operation id ?2 issuer ?3 key_tenant ?4 grant_id
SELECT EXISTS (SELECT 1 FROM operations AS o WHERE o.operation_id = ?1)
       OR EXISTS (SELECT 1 FROM operations AS o WHERE o.issuer = ?2 AND o.key_tenant = ?3 AND o.grant_id = ?4)
