-- sweep_lag: for how long the oldest row past its end has been past it.
--
-- Invariants: reads only; it says how far the sweeper is behind, and decides nothing.
-- Isolation: READ COMMITTED, one statement. Locks: none.
-- Outcomes: milliseconds; 0 where no row is past its end.
--
-- $1 now (null: the database's clock)
SELECT greatest(0, coalesce((
    SELECT extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - e.until) * 1000
    FROM fencepost.entries AS e
    WHERE e.state <> 'claimed'
    ORDER BY e.until
    LIMIT 1
), 0))::int8 AS lag_ms
