-- operation_write: what an owner's call changed. In the write lock, after the row was looked at.
--
-- ?1 operation id ?2 status ?3 reference ?4 owner version ?5 lease_until ?6 now
UPDATE operations SET status = ?2, reference = ?3, owner_version = ?4, lease_until = ?5, updated_at = ?6
WHERE operation_id = ?1
