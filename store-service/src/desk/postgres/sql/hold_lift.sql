-- hold_lift: ends a hold; and who says so.
--
-- Isolation: READ COMMITTED, one statement; a second one waits and finds it lifted.
-- Locks: the hold's row.
-- Outcomes: one row: the hold. None: there is no such hold, or it was lifted before.
--
-- $1 id $2 who $3 reason
WITH lifted AS (
    UPDATE fencepost.holds AS h SET lifted_at = clock_timestamp()
    WHERE h.id = $1::int8 AND h.lifted_at IS NULL
    RETURNING h.id, h.prefix, h.since, h.keys_until, h.grants, h.began_at, h.began_by, h.reason, h.lifted_at
),
noted AS (
    INSERT INTO fencepost.desk_audit (at, who, action, subject, version_before, state_before, state_after, reason)
    SELECT l.lifted_at, $2::text, 'hold_lift', 'hold ' || l.id, '', 'in_force', 'lifted', $3::text FROM lifted AS l
)
SELECT l.*, clock_timestamp() AS now FROM lifted AS l
