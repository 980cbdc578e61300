-- hold_begin: from now on what may have been done in a lost window is held; and who says so.
--
-- Invariants: a hold is about the past only; it is never there without its line in the audit.
-- Isolation: READ COMMITTED, one statement. Statements that began before it commits do not see it: it
-- is begun before the restored store is served.
-- Locks: none.
-- Outcomes: one row: the hold. None: `since` is ahead of the clock.
--
-- $1 prefix $2 since (null: now) $3 for how long keys are held (ms; null: not) $4 grants? $5 who $6 reason
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
begun AS (
    INSERT INTO fencepost.holds AS h (prefix, since, keys_until, grants, began_at, began_by, reason)
    SELECT $1::text, coalesce($2::timestamptz, c.now), c.now + $3::int8 * interval '1 millisecond', $4::bool,
           c.now, $5::text, $6::text
    FROM clock AS c
    WHERE coalesce($2::timestamptz, c.now) <= c.now
    RETURNING h.id, h.prefix, h.since, h.keys_until, h.grants, h.began_at, h.began_by, h.reason, h.lifted_at
),
noted AS (
    INSERT INTO fencepost.desk_audit (at, who, action, subject, version_before, state_before, state_after, reason)
    SELECT b.began_at, b.began_by, 'hold_begin', 'hold ' || b.id, '', 'none', 'in_force', b.reason FROM begun AS b
)
SELECT b.*, c.now FROM begun AS b CROSS JOIN clock AS c
