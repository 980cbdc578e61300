-- held_due: held keys to look up, in the order of their keys. In the write lock.
--
-- ?1 prefixes as a JSON list ?2 now ?3 limit
SELECT e.key, e.fence, e.updated_at, e.scope, h.turn, h.attempts,
       coalesce(h.version_fence = e.fence AND h.version_updated_at = e.updated_at, 0) AS same
FROM entries AS e
LEFT JOIN held_keys AS h ON h.key = e.key
WHERE e.state = 'unknown'
  AND e.until > ?2
  AND substr(e.key, 1, instr(e.key, ':') - 1) IN (SELECT value FROM json_each(?1))
  AND (h.key IS NULL
       OR h.version_fence <> e.fence OR h.version_updated_at <> e.updated_at
       OR (h.for_person IS NULL AND h.next_at <= ?2))
ORDER BY e.key
LIMIT ?3
