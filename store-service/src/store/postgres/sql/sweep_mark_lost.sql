-- sweep_mark_lost: held claims whose lease ran out become unknown.
--
-- Purpose: what nobody asks for any more gets its end as well.
-- Invariants: a lease counts as over only for an instance that has been calm for as long as it.
-- Isolation: READ COMMITTED, one statement; rows that changed are checked again when locked.
-- Locks: at most $3 rows; rows that somebody has are left for the next round, so this statement
-- waits for nobody and is part of no deadlock.
-- Outcomes: how many rows changed, and the keys that callers wait for (null: none).
--
-- $1 now (null: the database's clock) $2 how long the instance has been calm (ms) $3 limit
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),
due AS MATERIALIZED (
    SELECT e.key
    FROM fencepost.entries AS e
    WHERE e.state = 'claimed'
      AND e.lease_until <= (SELECT now FROM clock)
      AND e.on_lost = 'hold'
      AND e.claim_ttl_ms <= $2::int8
    ORDER BY e.lease_until
    LIMIT $3::int8
    FOR UPDATE SKIP LOCKED
),
written AS (
    UPDATE fencepost.entries AS e
    SET state = 'unknown', cause = 'lease_expired', until = c.now + e.unknown_ttl_ms * interval '1 millisecond',
        lease_until = NULL, run_until = NULL, on_lost = NULL, claim_ttl_ms = NULL, unknown_ttl_ms = NULL,
        updated_at = c.now
    FROM due AS d CROSS JOIN clock AS c
    WHERE e.key = d.key
    RETURNING e.key, e.waited
)
SELECT count(*) AS changed, array_agg(w.key) FILTER (WHERE w.waited) AS waited_keys FROM written AS w
