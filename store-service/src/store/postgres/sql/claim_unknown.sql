-- claim_unknown: the holders can't tell whether the upstream did the work.
--
-- Purpose: for each asked key (sorted, none twice) close a held claim as unknown. A claim that may
-- be run again stays, with its lease over: an equal request takes it over once its upstream has
-- certainly stopped.
-- Invariants: only the holder's claim changes.
-- Isolation: READ COMMITTED, one statement; rows are locked, checked again, and only then the
-- clock is read.
-- Locks: the rows of the holders, in the order of the keys.
-- Outcomes: `wrote`: marked. Not `wrote` with the row as seen, or without a state: why not.
--
-- $1 keys $2 tokens $3 causes; $4 now (null: the database's clock)
WITH asked AS (
    SELECT a.* FROM unnest($1::text[], $2::bytea[], $3::text[]) AS a (key, token, cause)
),
locked AS MATERIALIZED (
    SELECT l.*, coalesce($4::timestamptz, clock_timestamp()) AS now
    FROM (
        SELECT r.key, r.on_lost, a.cause
        FROM (SELECT asked.* FROM asked ORDER BY asked.key COLLATE "C") AS a
        CROSS JOIN LATERAL (
            SELECT e.key, e.on_lost
            FROM fencepost.entries AS e
            WHERE e.key = a.key AND e.state = 'claimed' AND e.token = a.token
            FOR UPDATE
        ) AS r
        OFFSET 0
    ) AS l
),
written AS (
    UPDATE fencepost.entries AS e
    SET state = CASE l.on_lost WHEN 'hold' THEN 'unknown' ELSE 'claimed' END,
        cause = CASE l.on_lost WHEN 'hold' THEN l.cause END,
        until = CASE l.on_lost WHEN 'hold' THEN l.now + e.unknown_ttl_ms * interval '1 millisecond'
                    ELSE 'infinity' END,
        lease_until = CASE l.on_lost WHEN 'hold' THEN NULL ELSE l.now END,
        run_until = CASE l.on_lost WHEN 'hold' THEN NULL ELSE e.run_until END,
        on_lost = CASE l.on_lost WHEN 'hold' THEN NULL ELSE e.on_lost END,
        claim_ttl_ms = CASE l.on_lost WHEN 'hold' THEN NULL ELSE e.claim_ttl_ms END,
        unknown_ttl_ms = CASE l.on_lost WHEN 'hold' THEN NULL ELSE e.unknown_ttl_ms END,
        updated_at = l.now
    FROM locked AS l
    WHERE e.key = l.key
    RETURNING e.key, e.waited
)
SELECT w.key IS NOT NULL AS wrote, coalesce(w.waited, false) AS waited, coalesce($4::timestamptz, clock_timestamp()) AS now, a.key, s.state, s.token,
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
