-- sweep_drop_ended: rows past their end go.
--
-- Invariants: nothing depends on it: such a row counts as absent already.
-- Isolation: READ COMMITTED, one statement; rows that changed are checked again when locked.
-- Locks: at most $2 rows; rows that somebody has are left for the next round.
-- Outcomes: how many rows went.
--
-- Its commit waits for no disk and no standby, and claims wait for no further write: what a
-- crash undoes goes again in a later round, and whatever is written later for such a key makes this
-- durable as well, since it stands before it in the log.
--
-- $1 now (null: the database's clock) $2 limit
WITH hurried AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
),
due AS MATERIALIZED (
    SELECT e.key
    FROM fencepost.entries AS e
    WHERE e.state <> 'claimed'
      AND e.until <= (SELECT coalesce($1::timestamptz, clock_timestamp()))
    ORDER BY e.until
    LIMIT $2::int8
    FOR UPDATE SKIP LOCKED
),
dropped AS (
    DELETE FROM fencepost.entries AS e USING due AS d WHERE e.key = d.key RETURNING e.key
)
SELECT count(*) AS changed FROM hurried CROSS JOIN dropped
