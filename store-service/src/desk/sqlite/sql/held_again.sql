-- held_again: recovery looks again for a held key that it has given to a person. In the write lock.
--
-- ?1 key ?2 fence and ?3 time of the version ?4 now
UPDATE held_keys SET attempts = 0, next_at = ?4, result = '', for_person = NULL, marked_at = NULL
WHERE key = ?1 AND version_fence = ?2 AND version_updated_at = ?3 AND for_person IS NOT NULL
  AND EXISTS (
      SELECT 1 FROM entries AS e
      WHERE e.key = held_keys.key AND e.state = 'unknown' AND e.until > ?4
        AND e.fence = held_keys.version_fence AND e.updated_at = held_keys.version_updated_at)
