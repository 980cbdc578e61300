-- claim_renew: the holders are alive.
--
-- Purpose: for each asked key (sorted, none twice) start the lease anew. It works after the lease
-- ran out as well: the token is what counts, the lease only says when others may act.
-- Invariants: only the holder's claim changes; `run_until` never falls.
-- Isolation: READ COMMITTED, one statement; rows are locked, checked again, and only then the
-- clock is read.
-- Locks: the rows of the holders, in the order of the keys.
-- Outcomes: `wrote`: renewed. Not `wrote` with the row as seen, or without a state: why not.
--
-- $1 keys $2 tokens $3 claim_ttl_ms $4 run_ms; $5 now (null: the database's clock)
WITH asked AS (
    SELECT a.*
    FROM unnest($1::text[], $2::bytea[], $3::int4[], $4::int4[]) AS a (key, token, claim_ttl_ms, run_ms)
),
locked AS MATERIALIZED (
    SELECT l.*, coalesce($5::timestamptz, clock_timestamp()) AS now
    FROM (
        SELECT r.key, a.claim_ttl_ms, a.run_ms
        FROM (SELECT asked.* FROM asked ORDER BY asked.key COLLATE "C") AS a
        CROSS JOIN LATERAL (
            SELECT e.key
            FROM fencepost.entries AS e
            WHERE e.key = a.key AND e.state = 'claimed' AND e.token = a.token
            FOR UPDATE
        ) AS r
        OFFSET 0
    ) AS l
),
written AS (
    UPDATE fencepost.entries AS e
    SET lease_until = l.now + l.claim_ttl_ms * interval '1 millisecond',
        run_until = greatest(e.run_until, l.now + l.run_ms * interval '1 millisecond'),
        claim_ttl_ms = l.claim_ttl_ms,
        updated_at = l.now
    FROM locked AS l
    WHERE e.key = l.key
    RETURNING e.key
)
SELECT w.key IS NOT NULL AS wrote, false AS waited, coalesce($5::timestamptz, clock_timestamp()) AS now, a.key, s.state, s.token,
       s.fence, s.scheme, s.fingerprint, s.scope, s.dead_tokens, s.lease_until, s.run_until, s.on_lost,
       s.claim_ttl_ms, s.unknown_ttl_ms, s.until, s.cause, s.status, NULL::bytea AS headers, NULL::bytea AS body,
       s.completed_at, s.created_at, s.updated_at
FROM asked AS a
LEFT JOIN written AS w ON w.key = a.key
LEFT JOIN LATERAL (
    SELECT r.state, r.token, r.fence, r.scheme, r.fingerprint, r.scope, r.dead_tokens, r.lease_until,
           r.run_until, r.on_lost, r.claim_ttl_ms, r.unknown_ttl_ms, r.until, r.cause, r.status,
           r.completed_at, r.created_at, r.updated_at
    FROM fencepost.entries AS r
    WHERE r.key = a.key
    OFFSET 0
) AS s ON true
