-- operation_end: writes the end that a person named, or that recovery looks again: then its attempts and
-- its lease are gone. The decision was made inside the write lock.
--
-- ?1 operation id ?2 status ?3 reference (null: as it is) ?4 now
UPDATE operations SET status = ?2, reference = coalesce(?3, reference), updated_at = ?4,
    recovery_attempts = CASE ?2 WHEN 'unknown' THEN 0 ELSE recovery_attempts END,
    lease_until = CASE ?2 WHEN 'unknown' THEN min(lease_until, ?4) ELSE lease_until END
WHERE operation_id = ?1
