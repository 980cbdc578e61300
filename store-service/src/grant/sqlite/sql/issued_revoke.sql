-- issued_revoke: withdraws a grant that is a row. In the write lock, after the row was looked at.
--
-- ?1 issuer ?2 key_tenant ?3 grant_id ?4 now
UPDATE issued_grants SET revoked_at = ?4 WHERE issuer = ?1 AND key_tenant = ?2 AND grant_id = ?3
