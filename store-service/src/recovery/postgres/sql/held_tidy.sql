-- held_tidy: forgets held keys whose entry is held no more.
--
-- Isolation: READ COMMITTED, one statement. Locks: at most $2 rows of held_keys; those that somebody
-- has are left for the next round. A row that goes too early costs a look-up, nothing else.
-- Outcomes: how many went, and the last key looked at (null: the end was reached).
--
-- $1 keys behind this one (null: from the start) $2 limit
WITH seen AS MATERIALIZED (
    SELECT h.key, h.version_fence, h.version_updated_at
    FROM fencepost.held_keys AS h
    WHERE $1::text IS NULL OR h.key > $1::text COLLATE "C"
    ORDER BY h.key
    LIMIT $2::int8
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM fencepost.held_keys AS h
    USING seen AS s
    WHERE h.key = s.key
      AND NOT EXISTS (
          SELECT 1 FROM fencepost.entries AS e
          WHERE e.key = s.key AND e.state = 'unknown' AND e.until > clock_timestamp()
            AND e.fence = s.version_fence AND e.updated_at = s.version_updated_at)
    RETURNING h.key
)
SELECT (SELECT count(*) FROM gone) AS changed,
       CASE WHEN (SELECT count(*) FROM seen) = $2::int8 THEN (SELECT max(s.key) FROM seen AS s) END AS last
