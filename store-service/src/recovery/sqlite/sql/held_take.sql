-- held_take: this instance's turn. In the write lock, after held_due.
--
-- ?1 key ?2 fence and ?3 time of the version ?4 turn ?5 attempts ?6 next_at ?7 actor
INSERT OR REPLACE INTO held_keys
    (key, version_fence, version_updated_at, turn, attempts, next_at, result, for_person, marked_at, taken_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, '', NULL, NULL, ?7)
