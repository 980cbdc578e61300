-- claim_complete: the answers are known.
--
-- Purpose: for each asked key (sorted, none twice) keep the answer where its token was the last to
-- hold the key, whatever the clock says about the lease; or where nobody holds it.
-- Invariants: a kept answer is never replaced while it lives; the fence never falls.
-- Isolation: READ COMMITTED, one statement. The first look (`seen`) is only a filter; what is
-- written is decided again on the locked row, by a clock read after the lock.
-- Locks: one row per key that looks due, in the order of the keys.
-- Outcomes: `wrote`: stored (`waited` says whether callers of other instances wait for it). Not `wrote` with the row as seen: why not. Not `wrote` and no state,
-- or a row that looks due: the row changed meanwhile; ask again.
--
-- $1 keys $2 tokens $3 fences $4 schemes $5 fingerprints $6 scopes $7 statuses $8 headers $9 bodies
-- $10 ttl_ms; $11 now (null: the database's clock)
WITH asked AS (
    SELECT a.*
    FROM unnest($1::text[], $2::bytea[], $3::int8[], $4::text[], $5::bytea[], $6::bytea[], $7::int2[],
                $8::bytea[], $9::bytea[], $10::int8[])
             AS a (key, token, fence, scheme, fingerprint, scope, status, headers, body, ttl_ms)
),
seen AS MATERIALIZED (
    SELECT a.key AS asked_key, a.token AS asked_token, a.scheme AS asked_scheme,
           a.fingerprint AS asked_fingerprint, c.now, e.*
    FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS now) AS c
    CROSS JOIN asked AS a
    LEFT JOIN LATERAL (
        SELECT r.state, r.token, r.fence, r.scheme, r.fingerprint, r.scope, r.dead_tokens, r.lease_until,
               r.run_until, r.on_lost, r.claim_ttl_ms, r.unknown_ttl_ms, r.until, r.cause, r.status,
               r.completed_at, r.created_at, r.updated_at
        FROM fencepost.entries AS r
        WHERE r.key = a.key
        OFFSET 0
    ) AS e ON true
),
due AS (
    SELECT a.*, coalesce($11::timestamptz, clock_timestamp()) AS insert_now
    FROM asked AS a
    JOIN seen AS s ON s.asked_key = a.key
    WHERE s.state IS NULL
       OR s.until <= s.now
       OR (s.state IN ('claimed', 'unknown') AND s.token = s.asked_token)
       OR (s.state = 'released' AND s.scheme = s.asked_scheme AND s.fingerprint = s.asked_fingerprint)
    ORDER BY a.key COLLATE "C"
),
written AS (
    INSERT INTO fencepost.entries AS e
        (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, until, status, headers, body,
         completed_at, created_at, updated_at)
    SELECT d.key, 'completed', d.token,
           -- A fence beyond the clock was not given out here: it must not spend the numbers.
           least(d.fence, (extract(epoch FROM d.insert_now) * 1000000)::int8),
           d.scheme, d.fingerprint, d.scope, '{}', d.insert_now + d.ttl_ms * interval '1 millisecond',
           d.status, d.headers, d.body, d.insert_now, d.insert_now, d.insert_now
    FROM due AS d
    ON CONFLICT (key) DO UPDATE SET
        (state, token, fence, scheme, fingerprint, scope, lease_until, run_until, on_lost, claim_ttl_ms,
         unknown_ttl_ms, until, cause, status, headers, body, completed_at, created_at, updated_at) = (
            SELECT 'completed', excluded.token,
                   CASE WHEN c.own THEN e.fence ELSE greatest(e.fence, excluded.fence) END,
                   CASE WHEN c.own THEN e.scheme ELSE excluded.scheme END,
                   CASE WHEN c.own THEN e.fingerprint ELSE excluded.fingerprint END,
                   CASE WHEN c.own THEN e.scope ELSE excluded.scope END,
                   NULL::timestamptz, NULL::timestamptz, NULL::text, NULL::int4, NULL::int8,
                   -- The proposed row carries the lifetime as the distance between its two times.
                   c.now + (excluded.until - excluded.completed_at),
                   NULL::text, excluded.status, excluded.headers, excluded.body, c.now,
                   CASE WHEN c.own THEN e.created_at ELSE c.now END,
                   c.now
            FROM (SELECT n.now,
                         e.until > n.now
                         AND ((e.state IN ('claimed', 'unknown') AND e.token = excluded.token)
                              OR (e.state = 'released' AND e.scheme = excluded.scheme
                                  AND e.fingerprint = excluded.fingerprint)) AS own
                  FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS now) AS n) AS c
        )
    WHERE e.until <= coalesce($11::timestamptz, clock_timestamp())
       OR (e.state IN ('claimed', 'unknown') AND e.token = excluded.token)
       OR (e.state = 'released' AND e.scheme = excluded.scheme AND e.fingerprint = excluded.fingerprint)
    RETURNING e.key, e.state, e.token, e.fence, e.scheme, e.fingerprint, e.scope, e.dead_tokens, e.until,
        e.status, e.completed_at, e.waited, e.created_at, e.updated_at
)
SELECT true AS wrote, w.waited, w.updated_at AS now, w.key, w.state, w.token, w.fence, w.scheme, w.fingerprint, w.scope,
       w.dead_tokens, NULL::timestamptz AS lease_until, NULL::timestamptz AS run_until, NULL::text AS on_lost,
       NULL::int4 AS claim_ttl_ms, NULL::int8 AS unknown_ttl_ms, w.until, NULL::text AS cause, w.status,
       NULL::bytea AS headers, NULL::bytea AS body, w.completed_at, w.created_at, w.updated_at
FROM written AS w
UNION ALL
SELECT false, false, s.now, s.asked_key, s.state, s.token, s.fence, s.scheme, s.fingerprint, s.scope, s.dead_tokens,
       s.lease_until, s.run_until, s.on_lost, s.claim_ttl_ms, s.unknown_ttl_ms, s.until, s.cause, s.status,
       NULL, NULL, s.completed_at, s.created_at, s.updated_at
FROM seen AS s
WHERE NOT EXISTS (SELECT FROM written AS w WHERE w.key = s.asked_key)
