-- operation_record: how an operation went.
--
-- Invariants: only by its owner and from the expected status, which is never a final one; so a stale
-- writer changes nothing, and nothing overwrites a final status.
-- Isolation: READ COMMITTED, one statement: a second writer waits and looks at the row again.
-- Locks: the operation's row.
-- Outcomes: a row: recorded. None: it did not apply; operation_status says why.
--
-- $1 operation id $2 owner version $3 expected status $4 outcome $5 reference
UPDATE fencepost.operations AS o
SET status = $4::text, reference = $5::text, updated_at = clock_timestamp()
WHERE o.operation_id = $1::text::uuid
  AND o.owner_version = $2::int4
  AND o.status = $3::text
  AND o.status IN ('admitted', 'unknown')
RETURNING o.owner_version,
    (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
    (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
