-- operation_renew: an owner extends its lease.
--
-- Invariants: never shortens it, never moves submit_by. After its end as well, as long as nobody has
-- taken the operation over: the row's lock orders the two.
-- Isolation: READ COMMITTED, one statement. Locks: the operation's row.
-- Outcomes: a row: renewed. None: it did not apply; operation_status says why.
--
-- $1 operation id $2 owner version $3 lease (ms)
UPDATE fencepost.operations AS o
SET lease_until = greatest(o.lease_until, clock_timestamp() + $3::int8 * interval '1 millisecond'),
    updated_at = clock_timestamp()
WHERE o.operation_id = $1::text::uuid
  AND o.owner_version = $2::int4
  AND o.status IN ('admitted', 'unknown')
RETURNING o.owner_version,
    (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
    (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
