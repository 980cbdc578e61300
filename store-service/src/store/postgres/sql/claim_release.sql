-- claim_release: tokens give up their claims, or say that they never had one.
--
-- Purpose: after it the token claims nothing any more, wherever its claim may still be on its way:
-- its own claim is given back, and where there is none a tombstone or a note beside the row that
-- another token has keeps a late claim out.
-- Invariants: nobody else's claim changes, except that it remembers one more dead token; the fence
-- never falls.
-- Isolation: READ COMMITTED, one statement. The first look (`seen`) is only a filter; what is
-- written is decided again on the locked row, by a clock read after the lock.
-- Locks: one row per key that looks due, in the order of the keys.
-- Outcomes: `wrote` with the row as written (released: given back or remembered; claimed: another
-- token holds the key, ours is remembered beside it). Not `wrote` with the row as seen: why not.
-- Not `wrote` and no state, or a row that looks due: the row changed meanwhile; ask again.
--
-- $1 keys $2 tokens $3 schemes $4 fingerprints $5 scopes $6 causes; $7 lifetime of a tombstone (ms);
-- $8 now (null: the database's clock)
WITH asked AS (
    SELECT a.*
    FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bytea[], $5::bytea[], $6::text[])
             AS a (key, token, scheme, fingerprint, scope, cause)
),
seen AS MATERIALIZED (
    SELECT a.key AS asked_key, a.token AS asked_token, c.now, e.*
    FROM (SELECT coalesce($8::timestamptz, clock_timestamp()) AS now) AS c
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
    SELECT a.*, coalesce($8::timestamptz, clock_timestamp()) AS insert_now
    FROM asked AS a
    JOIN seen AS s ON s.asked_key = a.key
    WHERE s.state IS NULL
       OR s.until <= s.now
       OR (s.state = 'claimed' AND s.token = s.asked_token)
       OR (s.state IN ('claimed', 'released') AND s.token <> s.asked_token
           AND s.asked_token <> ALL (s.dead_tokens))
    ORDER BY a.key COLLATE "C"
),
written AS (
    INSERT INTO fencepost.entries AS e
        (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, until, cause, created_at, updated_at)
    SELECT d.key, 'released', d.token, (extract(epoch FROM d.insert_now) * 1000000)::int8, d.scheme,
           d.fingerprint, d.scope, '{}', d.insert_now + $7::int8 * interval '1 millisecond', d.cause,
           d.insert_now, d.insert_now
    FROM due AS d
    ON CONFLICT (key) DO UPDATE SET
        (state, token, fence, scheme, fingerprint, scope, dead_tokens, lease_until, run_until, on_lost,
         claim_ttl_ms, unknown_ttl_ms, until, cause, status, headers, body, completed_at, created_at,
         updated_at) = (
            SELECT CASE c.act WHEN 'beside' THEN e.state ELSE 'released' END,
                   CASE c.act WHEN 'fresh' THEN excluded.token ELSE e.token END,
                   CASE c.act WHEN 'fresh'
                       THEN greatest(e.fence, (extract(epoch FROM c.now) * 1000000)::int8)
                       ELSE e.fence END,
                   CASE c.act WHEN 'fresh' THEN excluded.scheme ELSE e.scheme END,
                   CASE c.act WHEN 'fresh' THEN excluded.fingerprint ELSE e.fingerprint END,
                   CASE c.act WHEN 'fresh' THEN excluded.scope ELSE e.scope END,
                   CASE WHEN c.act = 'beside'
                       THEN (e.dead_tokens || excluded.token)[greatest(1, cardinality(e.dead_tokens) - 6):]
                       ELSE e.dead_tokens END,
                   CASE c.act WHEN 'beside' THEN e.lease_until END,
                   CASE c.act WHEN 'beside' THEN e.run_until END,
                   CASE c.act WHEN 'beside' THEN e.on_lost END,
                   CASE c.act WHEN 'beside' THEN e.claim_ttl_ms END,
                   CASE c.act WHEN 'beside' THEN e.unknown_ttl_ms END,
                   CASE c.act WHEN 'beside' THEN e.until
                       ELSE c.now + $7::int8 * interval '1 millisecond' END,
                   CASE c.act WHEN 'beside' THEN e.cause ELSE excluded.cause END,
                   NULL::int2, NULL::bytea, NULL::bytea, NULL::timestamptz,
                   CASE c.act WHEN 'fresh' THEN c.now ELSE e.created_at END,
                   c.now
            FROM (SELECT n.now,
                         CASE WHEN e.state = 'claimed' AND e.token = excluded.token THEN 'own'
                              WHEN e.state = 'claimed' THEN 'beside'
                              WHEN e.state = 'released' AND e.until > n.now THEN 'beside'
                              ELSE 'fresh' END AS act
                  FROM (SELECT coalesce($8::timestamptz, clock_timestamp()) AS now) AS n) AS c
        )
    WHERE e.until <= coalesce($8::timestamptz, clock_timestamp())
       OR (e.state = 'claimed' AND e.token = excluded.token)
       OR (e.state IN ('claimed', 'released') AND e.token <> excluded.token
           AND excluded.token <> ALL (e.dead_tokens))
    RETURNING e.key, e.state, e.token, e.fence, e.scheme, e.fingerprint, e.scope, e.dead_tokens, e.lease_until,
        e.run_until, e.on_lost, e.claim_ttl_ms, e.unknown_ttl_ms, e.until, e.cause, e.waited, e.created_at, e.updated_at
)
SELECT true AS wrote, w.waited, w.updated_at AS now, w.key, w.state, w.token, w.fence, w.scheme, w.fingerprint, w.scope,
       w.dead_tokens, w.lease_until, w.run_until, w.on_lost, w.claim_ttl_ms, w.unknown_ttl_ms, w.until, w.cause,
       NULL::int2 AS status, NULL::bytea AS headers, NULL::bytea AS body, NULL::timestamptz AS completed_at,
       w.created_at, w.updated_at
FROM written AS w
UNION ALL
SELECT false, false, s.now, s.asked_key, s.state, s.token, s.fence, s.scheme, s.fingerprint, s.scope, s.dead_tokens,
       s.lease_until, s.run_until, s.on_lost, s.claim_ttl_ms, s.unknown_ttl_ms, s.until, s.cause, s.status,
       NULL, NULL, s.completed_at, s.created_at, s.updated_at
FROM seen AS s
WHERE NOT EXISTS (SELECT FROM written AS w WHERE w.key = s.asked_key)
