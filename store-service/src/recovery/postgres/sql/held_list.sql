-- held_list: held keys that wait for a person, in the order of their keys.
--
-- Isolation: any. Locks: none.
-- Outcomes: at most $3 rows; only keys that are still held as they were marked.
--
-- $1 prefixes (null: any) $2 keys behind this one (null: all) $3 limit
SELECT h.key, h.version_fence, h.version_updated_at, h.attempts, h.result, h.for_person, h.marked_at, h.taken_by
FROM fencepost.held_keys AS h
JOIN fencepost.entries AS e ON e.key = h.key
WHERE h.for_person IS NOT NULL
  AND e.state = 'unknown' AND e.until > clock_timestamp()
  AND e.fence = h.version_fence AND e.updated_at = h.version_updated_at
  AND ($1::text[] IS NULL OR split_part(h.key, ':', 1) = ANY ($1::text[]))
  AND ($2::text IS NULL OR h.key > $2::text COLLATE "C")
ORDER BY h.key
LIMIT $3::int8
