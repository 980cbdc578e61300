-- hold_begin: from now on what may have been done in a lost window is held.
--
-- ?1 prefix ?2 since ?3 until when keys are held (null: not) ?4 grants? ?5 now ?6 who ?7 reason
INSERT INTO holds (prefix, since, keys_until, grants, began_at, began_by, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
