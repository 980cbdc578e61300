-- held_list: held keys that wait for a person and are still held as they were marked.
--
-- ?1 prefixes as a JSON list, ?2 keys behind this one (each null: any) ?3 now ?4 limit
SELECT h.key, h.version_fence, h.version_updated_at, h.attempts, h.result, h.for_person, h.marked_at, h.taken_by
FROM held_keys AS h
JOIN entries AS e ON e.key = h.key
WHERE h.for_person IS NOT NULL
  AND e.state = 'unknown' AND e.until > ?3
  AND e.fence = h.version_fence AND e.updated_at = h.version_updated_at
  AND (?1 IS NULL OR substr(h.key, 1, instr(h.key, ':') - 1) IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR h.key > ?2)
ORDER BY h.key
LIMIT ?4
