-- operation_take_over: recovery becomes the owner of a stalled operation.
--
-- Invariants: the version grows by one, so every later write of the old owner changes nothing; of
-- several that try, one finds the version that it saw. Final statuses, and those that wait for a
-- person, are left alone. submit_by does not move: past it, the operation is taken over to be looked
-- up, not to be sent again.
-- Isolation: READ COMMITTED, one statement. Locks: the operation's row.
-- Outcomes: a row: taken over. None: it did not apply; operation_status says why.
--
-- $1 operation id $2 owner version that was seen $3 lease (ms)
UPDATE fencepost.operations AS o
SET owner_version = o.owner_version + 1,
    lease_until = clock_timestamp() + $3::int8 * interval '1 millisecond',
    updated_at = clock_timestamp()
WHERE o.operation_id = $1::text::uuid
  AND o.status IN ('admitted', 'unknown')
  AND o.lease_until < clock_timestamp()
  AND o.owner_version = $2::int4
RETURNING o.owner_version,
    (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
    (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
