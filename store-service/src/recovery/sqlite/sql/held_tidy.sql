-- held_tidy: forgets held keys whose entry is held no more.
--
-- ?1 keys behind this one, ?2 up to this one (each null: any) ?3 now
DELETE FROM held_keys
WHERE (?1 IS NULL OR key > ?1) AND (?2 IS NULL OR key <= ?2)
  AND NOT EXISTS (
      SELECT 1 FROM entries AS e
      WHERE e.key = held_keys.key AND e.state = 'unknown' AND e.until > ?3
        AND e.fence = held_keys.version_fence AND e.updated_at = held_keys.version_updated_at)
