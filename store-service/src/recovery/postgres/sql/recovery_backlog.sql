-- recovery_backlog: how much waits for recovery, and how much for people. For metrics: each number is
-- counted up to $1.
--
-- Isolation: any. Locks: none.
--
-- $1 highest number
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM fencepost.operations AS o
            WHERE o.status IN ('admitted', 'unknown') AND o.lease_until < (SELECT clock_timestamp())
            LIMIT $1::int8) AS s) AS stalled,
       (SELECT count(*) FROM (
            SELECT 1 FROM fencepost.operations AS o WHERE o.status = 'needs_reconciliation' LIMIT $1::int8
        ) AS n) AS needs_reconciliation,
       (SELECT count(*) FROM (
            SELECT 1 FROM fencepost.held_keys AS h WHERE h.for_person IS NOT NULL LIMIT $1::int8) AS m) AS marked
