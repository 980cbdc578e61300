-- claim_fresh: claims of keys that have no row.
--
-- Purpose: what most claims need, by a statement that is a fraction of claim_acquire: make the claim
-- where the key has no row, else say what the row is. Who is not settled by that asks
-- claim_acquire: a row that looks due, a row that came meanwhile, any key without one while a
-- hold stands.
-- Invariants: a row that is there is neither changed nor locked; at most one token makes it.
-- Isolation: READ COMMITTED, one statement. Uniqueness of the key decides who makes the row. A row that
-- another transaction is about to make is waited for; if it is kept, nothing is said about it
-- here, since it was not there when this statement began.
-- Locks: the rows that it makes, in the order of the keys.
-- Outcomes: `wrote` with the clock that the claim was made by: the caller's, and all else of the row
-- follows from what was asked. Not `wrote` with the row as seen. No row: not settled.
--
-- The hold is read by the statement's snapshot, as in claim_acquire: a claim counts as made before
-- every hold that the snapshot does not show.
--
-- $1 keys $2 tokens $3 schemes $4 fingerprints $5 scopes $6 on_lost $7 claim_ttl_ms $8 max_run_ms
-- $9 unknown_ttl_ms; $10 longest body to return; $11 now (null: the database's clock)
WITH made AS (
    INSERT INTO fencepost.entries AS e
        (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, lease_until, run_until, on_lost,
         claim_ttl_ms, unknown_ttl_ms, until, created_at, updated_at)
    SELECT a.key, 'claimed', a.token, (extract(epoch FROM c.now) * 1000000)::int8, a.scheme, a.fingerprint, a.scope,
           '{}', c.now + a.claim_ttl_ms * interval '1 millisecond',
           c.now + (a.claim_ttl_ms::int8 + a.max_run_ms) * interval '1 millisecond', a.on_lost, a.claim_ttl_ms,
           a.unknown_ttl_ms, 'infinity', c.now, c.now
    FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS now) AS c
    CROSS JOIN unnest($1::text[], $2::bytea[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::int4[],
                      $8::int4[], $9::int8[])
             AS a (key, token, scheme, fingerprint, scope, on_lost, claim_ttl_ms, max_run_ms, unknown_ttl_ms)
    WHERE NOT EXISTS (SELECT FROM fencepost.holds AS o WHERE o.lifted_at IS NULL)
    ORDER BY a.key COLLATE "C"
    ON CONFLICT (key) DO NOTHING
    RETURNING e.key, e.created_at
)
SELECT true AS wrote, false AS waited, m.created_at AS now, m.key, NULL::text AS state, NULL::bytea AS token,
       NULL::int8 AS fence, NULL::text AS scheme, NULL::bytea AS fingerprint, NULL::bytea AS scope,
       NULL::bytea[] AS dead_tokens, NULL::timestamptz AS lease_until, NULL::timestamptz AS run_until,
       NULL::text AS on_lost, NULL::int4 AS claim_ttl_ms, NULL::int8 AS unknown_ttl_ms, NULL::timestamptz AS until,
       NULL::text AS cause, NULL::int2 AS status, NULL::bytea AS headers, NULL::bytea AS body,
       NULL::timestamptz AS completed_at, NULL::timestamptz AS created_at, NULL::timestamptz AS updated_at
FROM made AS m
UNION ALL
SELECT false, false, coalesce($11::timestamptz, clock_timestamp()), r.key, r.state, r.token, r.fence, r.scheme,
       r.fingerprint, r.scope, r.dead_tokens, r.lease_until, r.run_until, r.on_lost, r.claim_ttl_ms, r.unknown_ttl_ms,
       r.until, r.cause, r.status, r.headers,
       -- The answer goes to those only who may see it, and a long one travels alone.
       CASE WHEN octet_length(r.body) <= $10::int4
                 AND (r.token = a.token OR (r.scheme = a.scheme AND r.fingerprint = a.fingerprint))
           THEN r.body END,
       r.completed_at, r.created_at, r.updated_at
FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bytea[]) AS a (key, token, scheme, fingerprint)
-- OFFSET 0 keeps this a look-up by primary key, whatever the statistics say.
CROSS JOIN LATERAL (
    SELECT e.key, e.state, e.token, e.fence, e.scheme, e.fingerprint, e.scope, e.dead_tokens, e.lease_until,
           e.run_until, e.on_lost, e.claim_ttl_ms, e.unknown_ttl_ms, e.until, e.cause, e.status, e.headers, e.body,
           e.completed_at, e.created_at, e.updated_at
    FROM fencepost.entries AS e
    WHERE e.key = a.key
    OFFSET 0
) AS r
