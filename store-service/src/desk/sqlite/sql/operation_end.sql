-- operation_end: writes the end that a person named. The decision was made inside the write lock.
--
-- ?1 operation id ?2 status ?3 reference (null: as it is) ?4 now
UPDATE operations SET status = ?2, reference = coalesce(?3, reference), updated_at = ?4 WHERE operation_id = ?1
