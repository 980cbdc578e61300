-- claim_look: what is known of these keys.
--
-- Purpose: tell whether a claim would be made, and whether one is still live, without making any:
-- for callers that are over their quota.
-- Isolation: READ COMMITTED, one statement. What it says may be past when it is read: whoever claims
-- decides anew. Locks: none.
-- Outcomes: one row for each key with a live entry, without its answer.
--
-- $1 keys (sorted, none twice) $2 now (null: the database's clock)
SELECT false AS wrote, false AS waited, c.now, e.key, e.state, e.token, e.fence, e.scheme, e.fingerprint, e.scope,
       e.dead_tokens, e.lease_until, e.run_until, e.on_lost, e.claim_ttl_ms, e.unknown_ttl_ms, e.until, e.cause,
       e.status, NULL::bytea AS headers, NULL::bytea AS body, e.completed_at, e.created_at, e.updated_at
FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) AS c
CROSS JOIN unnest($1::text[]) AS a (key)
-- OFFSET 0 keeps this a look-up by primary key, whatever the statistics say.
CROSS JOIN LATERAL (
    SELECT r.key, r.state, r.token, r.fence, r.scheme, r.fingerprint, r.scope, r.dead_tokens, r.lease_until,
           r.run_until, r.on_lost, r.claim_ttl_ms, r.unknown_ttl_ms, r.until, r.cause, r.status, r.completed_at,
           r.created_at, r.updated_at
    FROM fencepost.entries AS r
    WHERE r.key = a.key
    OFFSET 0
) AS e
WHERE e.until > c.now
