-- sweep_drop_abandoned: claims that may be run again go, once nobody asked for them for as long as
-- an unknown outcome lives.
--
-- Invariants: a claim goes only after its upstream has certainly stopped, and long after.
-- Isolation: READ COMMITTED, one statement; rows that changed are checked again when locked.
-- Locks: at most $3 rows; rows that somebody has are left for the next round.
-- Outcomes: how many rows went.
--
-- Its commit waits for no disk and no standby, and claims wait for no further write: what a
-- crash undoes goes again in a later round, and whatever is written later for such a key makes this
-- durable as well, since it stands before it in the log.
--
-- $1 now (null: the database's clock) $2 how long the instance has been calm (ms) $3 limit
WITH hurried AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
),
clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),
due AS MATERIALIZED (
    SELECT e.key
    FROM fencepost.entries AS e
    WHERE e.state = 'claimed'
      AND e.lease_until <= (SELECT now FROM clock)
      AND e.on_lost = 'rerun'
      AND e.claim_ttl_ms <= $2::int8
      AND e.run_until + e.unknown_ttl_ms * interval '1 millisecond' <= (SELECT now FROM clock)
    ORDER BY e.lease_until
    LIMIT $3::int8
    FOR UPDATE SKIP LOCKED
),
dropped AS (
    DELETE FROM fencepost.entries AS e USING due AS d WHERE e.key = d.key RETURNING e.key
)
SELECT count(*) AS changed FROM hurried CROSS JOIN dropped
