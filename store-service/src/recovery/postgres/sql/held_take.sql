-- held_take: recovery takes some held keys to look them up.
--
-- Invariants: the entry itself is not touched, so its version stays what people were shown. A turn is
-- of one instance: a second one finds the row taken, or its insert in conflict, and takes nothing. A
-- row for a person stays as it is while its entry has the same version.
-- Isolation: READ COMMITTED, one statement; the row of held_keys is looked at again once it is locked.
-- Locks: rows of held_keys in the order of their keys, so that two instances don't deadlock.
-- Outcomes: the keys that were taken.
--
-- $1 prefixes $2 lease (ms) $3 actor $4 limit
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
due AS MATERIALIZED (
    SELECT e.key, e.fence, e.updated_at, e.scope, e.until
    FROM fencepost.entries AS e
    LEFT JOIN fencepost.held_keys AS h ON h.key = e.key
    WHERE e.state = 'unknown'
      AND e.until > (SELECT now FROM clock)
      AND split_part(e.key, ':', 1) = ANY ($1::text[])
      AND (h.key IS NULL
           OR h.version_fence <> e.fence OR h.version_updated_at <> e.updated_at
           OR (h.for_person IS NULL AND h.next_at <= (SELECT now FROM clock)))
    ORDER BY e.key
    LIMIT $4::int8
),
taken AS (
    INSERT INTO fencepost.held_keys AS h
        (key, version_fence, version_updated_at, turn, attempts, next_at, result, for_person, marked_at, taken_by)
    SELECT d.key, d.fence, d.updated_at, 1, 0, clock_timestamp() + $2::int8 * interval '1 millisecond', '',
           NULL, NULL, $3::text
    FROM due AS d
    ORDER BY d.key
    ON CONFLICT (key) DO UPDATE
    SET version_fence = excluded.version_fence,
        version_updated_at = excluded.version_updated_at,
        turn = h.turn + 1,
        attempts = CASE WHEN h.version_fence = excluded.version_fence
                         AND h.version_updated_at = excluded.version_updated_at THEN h.attempts ELSE 0 END,
        next_at = excluded.next_at, result = '', for_person = NULL, marked_at = NULL, taken_by = excluded.taken_by
    WHERE h.version_fence <> excluded.version_fence OR h.version_updated_at <> excluded.version_updated_at
       OR (h.for_person IS NULL AND h.next_at <= clock_timestamp())
    RETURNING h.key, h.version_fence, h.version_updated_at, h.turn, h.attempts
)
SELECT t.key, t.version_fence, t.version_updated_at, t.turn, t.attempts, d.scope,
       (extract(epoch FROM clock_timestamp() - d.updated_at) * 1000)::int8 AS age_ms
FROM taken AS t
JOIN due AS d ON d.key = t.key
