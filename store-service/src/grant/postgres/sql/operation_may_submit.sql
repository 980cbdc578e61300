-- operation_may_submit: may this owner send its request now?
--
-- Purpose: narrows the window in which a delayed owner sends. It can't close it: nothing here fences
-- a pause after the answer.
-- Isolation: READ COMMITTED. Locks: none.
-- Outcomes: a row: yes, for left_ms. None: no; operation_status says why.
--
-- $1 operation id $2 owner version $3 expected status
SELECT o.owner_version,
       (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
       (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
FROM fencepost.operations AS o
WHERE o.operation_id = $1::text::uuid
  AND o.status IN ('admitted', 'unknown')
  AND o.status = $3::text
  AND o.owner_version = $2::int4
  AND clock_timestamp() < least(o.lease_until, o.submit_by)
