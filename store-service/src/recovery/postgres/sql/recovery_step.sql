-- recovery_step: recovery is about to do something about an operation that it owns: the lease is
-- renewed for it, and it is noted. Both or neither.
--
-- Invariants: only by its owner while it is open, also after the lease's end as long as nobody has
-- taken it over; never shortens the lease, never moves submit_by.
-- Isolation: READ COMMITTED, one statement. Locks: the operation's row.
-- Outcomes: a row: it is still ours, for lease_left_ms. None: it is not, and nothing was noted.
--
-- $1 operation id $2 owner version $3 lease (ms) $4 actor $5 step $6 what was known $7 detail
WITH renewed AS (
    UPDATE fencepost.operations AS o
    SET lease_until = greatest(o.lease_until, clock_timestamp() + $3::int8 * interval '1 millisecond'),
        updated_at = clock_timestamp()
    WHERE o.operation_id = $1::text::uuid
      AND o.owner_version = $2::int4
      AND o.status IN ('admitted', 'unknown')
    RETURNING o.operation_id, o.owner_version, o.status, o.lease_until, o.submit_by, o.updated_at
),
noted AS (
    INSERT INTO fencepost.operation_events
        (at, operation_id, owner_version, actor, step, result, status, detail)
    SELECT r.updated_at, r.operation_id, r.owner_version, $4::text, $5::text, $6::text, r.status, $7::text
    FROM renewed AS r
)
SELECT r.owner_version,
       (extract(epoch FROM r.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
       (extract(epoch FROM r.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
FROM renewed AS r
