-- entry_settle: a person ends what the service can't.
--
-- Purpose: free a key, or give it an answer, exactly as long as it is what the person saw; and
-- write down who did it and why.
-- Invariants: another version than the one that was seen is never changed; a request that may be
-- running is not touched without force; nothing happens that the audit does not have.
-- Isolation: READ COMMITTED, one statement; the version is compared on the locked row, and only
-- then the clock is read.
-- Locks: the row, if it has the version.
-- Outcomes: `wrote`: done. Not `wrote` with the row as seen, or without a state: why not.
--
-- $1 key $2 fence and $3 time of the version $4 new state $5 cause $6 status $7 headers $8 body
-- $9 lifetime of the new state (ms) $10 force $11 action $12 who $13 reason;
-- $14 now (null: the database's clock) $15 token that an answer stands under: no claim's
WITH locked AS MATERIALIZED (
    SELECT l.*, coalesce($14::timestamptz, clock_timestamp()) AS now
    FROM (
        SELECT e.key, e.state, e.fence, e.updated_at, e.lease_until, e.run_until, e.on_lost, e.until
        FROM fencepost.entries AS e
        WHERE e.key = $1::text AND e.fence = $2::int8 AND e.updated_at = $3::timestamptz
        FOR UPDATE
        OFFSET 0
    ) AS l
),
due AS (
    SELECT l.*
    FROM locked AS l
    WHERE l.until > l.now
      AND l.state <> $4::text
      AND (l.state <> 'claimed' OR $10::bool
           OR (l.lease_until <= l.now AND (l.on_lost = 'hold' OR l.run_until <= l.now)))
),
written AS (
    UPDATE fencepost.entries AS e
    SET state = $4::text, token = CASE $4::text WHEN 'completed' THEN $15::bytea ELSE e.token END, cause = $5::text, status = $6::int2, headers = $7::bytea, body = $8::bytea,
        completed_at = CASE $4::text WHEN 'completed' THEN d.now END,
        until = d.now + $9::int8 * interval '1 millisecond',
        lease_until = NULL, run_until = NULL, on_lost = NULL, claim_ttl_ms = NULL, unknown_ttl_ms = NULL,
        updated_at = d.now
    FROM due AS d
    WHERE e.key = d.key
    RETURNING e.key, e.waited
),
noted AS (
    INSERT INTO fencepost.entry_audit
        (at, who, action, key, version_fence, version_updated_at, state_before, state_after, forced, reason)
    SELECT d.now, $12::text, $11::text, d.key, d.fence, d.updated_at, d.state, $4::text, $10::bool, $13::text
    FROM due AS d
    JOIN written AS w ON w.key = d.key
    RETURNING id
)
SELECT w.key IS NOT NULL AND n.id IS NOT NULL AS wrote, coalesce(w.waited, false) AS waited,
       coalesce($14::timestamptz, clock_timestamp()) AS now, s.state, s.token, s.fence, s.scheme, s.fingerprint,
       s.scope, s.dead_tokens, s.lease_until, s.run_until, s.on_lost, s.claim_ttl_ms, s.unknown_ttl_ms, s.until,
       s.cause, s.status, NULL::bytea AS headers, NULL::bytea AS body, s.completed_at, s.created_at, s.updated_at
FROM (SELECT $1::text AS key) AS a
LEFT JOIN written AS w ON w.key = a.key
LEFT JOIN noted AS n ON true
LEFT JOIN LATERAL (
    SELECT r.state, r.token, r.fence, r.scheme, r.fingerprint, r.scope, r.dead_tokens, r.lease_until,
           r.run_until, r.on_lost, r.claim_ttl_ms, r.unknown_ttl_ms, r.until, r.cause, r.status,
           r.completed_at, r.created_at, r.updated_at
    FROM fencepost.entries AS r
    WHERE r.key = a.key
    OFFSET 0
) AS s ON true
