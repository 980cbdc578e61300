-- operation_finish: how an operation went, with the answer of its run.
--
-- Invariants: as operation_record; outcome and answer are written together, so whoever sees the one
-- sees the other, and the first answer stays, because a final status is never written again.
-- Isolation: READ COMMITTED, one statement: a second writer waits and looks at the row again.
-- Locks: the operation's row.
-- Outcomes: a row: recorded. None: it did not apply; operation_status says why.
--
-- $1 operation id $2 owner version $3 expected status $4 outcome $5 reference $6 status of the answer
-- (null: none) $7 its header block $8 its body
UPDATE fencepost.operations AS o
SET status = $4::text, reference = $5::text, answer_status = $6::int4, answer_headers = $7::bytea,
    answer_body = $8::bytea, updated_at = clock_timestamp()
WHERE o.operation_id = $1::text::uuid
  AND o.owner_version = $2::int4
  AND o.status = $3::text
  AND o.status IN ('admitted', 'unknown')
RETURNING o.owner_version,
    (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
    (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
