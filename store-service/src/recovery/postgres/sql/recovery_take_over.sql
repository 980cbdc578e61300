-- recovery_take_over: recovery becomes the owner of some stalled operations, and notes it.
--
-- Invariants: the version grows by one, so every later write of the old owner changes nothing. Final
-- statuses, and those that wait for a person, are left alone. submit_by does not move.
-- Isolation: READ COMMITTED, one statement; a row that changed is looked at again once it is locked.
-- Locks: at most $5 rows of operations; rows that somebody has are left for the next round, so this
-- statement waits for nobody, and of several instances one has each operation.
-- Outcomes: the operations that were taken over, with what is left of their times.
--
-- $1 issuers (null: any) $2 only those admitted longer ago (ms; null: any age) $3 lease (ms) $4 actor
-- $5 limit $6 detail of the note
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
due AS MATERIALIZED (
    SELECT o.operation_id
    FROM fencepost.operations AS o
    WHERE o.status IN ('admitted', 'unknown')
      AND o.lease_until < (SELECT now FROM clock)
      AND ($1::text[] IS NULL OR o.issuer = ANY ($1::text[]))
      AND ($2::int8 IS NULL
           OR o.created_at <= (SELECT now FROM clock) - $2::int8 * interval '1 millisecond')
    ORDER BY o.lease_until
    LIMIT $5::int8
    FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE fencepost.operations AS o
    SET owner_version = o.owner_version + 1,
        lease_until = clock_timestamp() + $3::int8 * interval '1 millisecond',
        updated_at = clock_timestamp()
    FROM due AS d
    WHERE o.operation_id = d.operation_id
    RETURNING o.*
),
noted AS (
    INSERT INTO fencepost.operation_events
        (at, operation_id, owner_version, actor, step, result, status, detail)
    SELECT t.updated_at, t.operation_id, t.owner_version, $4::text, 'take_over', '', t.status, $6::text
    FROM taken AS t
)
SELECT t.operation_id::text AS operation_id, t.issuer, t.key_tenant, t.grant_id, t.caller_namespace, t.caller_id,
       t.tenant, t.details_digest, t.details, t.status, t.reference, t.owner_version, t.recovery_attempts,
       (extract(epoch FROM t.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
       (extract(epoch FROM t.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms,
       (extract(epoch FROM clock_timestamp() - t.created_at) * 1000)::int8 AS age_ms
FROM taken AS t
