-- claim_acquire: who may run these requests.
--
-- Purpose: for each asked key (sorted, none twice) make the claim where it is due; otherwise say
-- what the row is, so that the caller learns why not.
-- Invariants: at most one token holds a key; the fence grows with every new claim; a dead token
-- claims nothing; a caller that loses writes nothing and locks nothing.
-- Isolation: READ COMMITTED, one statement. The first look (`seen`) is only a filter: whatever is
-- written is decided again on the locked row, by a clock read after the lock, so that waiting for
-- a lock does not eat the lease and nobody acts on what was true before.
-- Locks: one row per key that looks due, in the order of the keys.
-- Outcomes: `wrote` with the row as written: the caller's claim, or a held claim that became
-- unknown (`waited` says whether callers of other instances wait for it). Not `wrote` with the row as seen. Not `wrote` and no state, or a row that looks due:
-- another caller was faster; ask again.
--
-- While a hold stands (see the table holds) and no person has spoken for the key since it began,
-- nothing is granted: a key without an answer becomes unknown (`held`), and a claim that would be
-- taken over does so too (`lost`). The hold is read by the statement's snapshot, and decided for the
-- row that is proposed, so nothing about the row can change in between that would grant it.
--
-- What was written is told apart by its token, never by xmax or ctid, so the statement also works
-- on partitions and on databases that have neither.
--
-- $1 keys $2 tokens $3 schemes $4 fingerprints $5 scopes $6 on_lost $7 claim_ttl_ms $8 max_run_ms
-- $9 unknown_ttl_ms; $10 how long the instance has been calm (ms); $11 longest body to return;
-- $12 now (null: the database's clock)
WITH asked AS (
    SELECT a.*
    FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::int4[],
                $8::int4[], $9::int8[])
             AS a (key, token, scheme, fingerprint, scope, on_lost, claim_ttl_ms, max_run_ms, unknown_ttl_ms)
),
seen AS MATERIALIZED (
    SELECT a.key AS asked_key, a.token AS asked_token, a.scheme AS asked_scheme,
           a.fingerprint AS asked_fingerprint, a.scope AS asked_scope, a.on_lost AS asked_on_lost,
           a.claim_ttl_ms AS asked_claim_ttl_ms, a.max_run_ms AS asked_max_run_ms,
           a.unknown_ttl_ms AS asked_unknown_ttl_ms,
           c.now, e.*, CASE WHEN h.keys_until > c.now THEN h.keys_until END AS held_until
    FROM (SELECT coalesce($12::timestamptz, clock_timestamp()) AS now) AS c
    CROSS JOIN asked AS a
    -- OFFSET 0 keeps this a look-up by primary key, whatever the statistics say.
    LEFT JOIN LATERAL (
        SELECT r.state, r.token, r.fence, r.scheme, r.fingerprint, r.scope, r.dead_tokens, r.lease_until,
               r.run_until, r.on_lost, r.claim_ttl_ms, r.unknown_ttl_ms, r.until, r.cause, r.status, r.headers,
               r.body, r.completed_at, r.created_at, r.updated_at
        FROM fencepost.entries AS r
        WHERE r.key = a.key
        OFFSET 0
    ) AS e ON true
    LEFT JOIN LATERAL (
        SELECT max(o.keys_until) AS keys_until
        FROM fencepost.holds AS o
        WHERE o.lifted_at IS NULL
          AND (o.prefix IS NULL OR o.prefix = split_part(a.key, ':', 1))
          AND NOT EXISTS (SELECT FROM fencepost.entry_audit AS l
                          WHERE l.key = a.key AND l.at >= o.began_at AND l.state_after = 'released')
    ) AS h ON true
),
due AS (
    SELECT s.*, coalesce($12::timestamptz, clock_timestamp()) AS insert_now,
           s.held_until IS NOT NULL AND NOT coalesce(s.state = 'claimed' AND s.token = s.asked_token, false) AS held
    FROM seen AS s
    WHERE s.state IS NULL
       OR (s.state = 'claimed' AND s.token = s.asked_token)
       OR ((s.until <= s.now OR (s.state = 'released' AND s.token <> s.asked_token))
           AND s.asked_token <> ALL (s.dead_tokens))
       OR (s.state = 'claimed' AND s.lease_until <= s.now AND s.claim_ttl_ms <= $10::int8
           AND (s.on_lost = 'hold'
                OR (s.scheme = s.asked_scheme AND s.fingerprint = s.asked_fingerprint
                    AND s.run_until <= s.now AND s.asked_token <> ALL (s.dead_tokens))))
    ORDER BY s.asked_key COLLATE "C"
),
written AS (
    INSERT INTO fencepost.entries AS e
        (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, lease_until, run_until, on_lost,
         claim_ttl_ms, unknown_ttl_ms, until, cause, created_at, updated_at)
    SELECT d.asked_key, CASE WHEN d.held THEN 'unknown' ELSE 'claimed' END, d.asked_token, (extract(epoch FROM d.insert_now) * 1000000)::int8,
           d.asked_scheme, d.asked_fingerprint, d.asked_scope, '{}',
           CASE WHEN NOT d.held THEN d.insert_now + d.asked_claim_ttl_ms * interval '1 millisecond' END,
           CASE WHEN NOT d.held
               THEN d.insert_now + (d.asked_claim_ttl_ms::int8 + d.asked_max_run_ms) * interval '1 millisecond' END,
           CASE WHEN NOT d.held THEN d.asked_on_lost END, CASE WHEN NOT d.held THEN d.asked_claim_ttl_ms END,
           CASE WHEN NOT d.held THEN d.asked_unknown_ttl_ms END,
           CASE WHEN d.held THEN d.held_until ELSE 'infinity' END, CASE WHEN d.held THEN 'held' END,
           d.insert_now, d.insert_now
    FROM due AS d
    ON CONFLICT (key) DO UPDATE SET
        (state, token, fence, scheme, fingerprint, scope, dead_tokens, lease_until, run_until, on_lost,
         claim_ttl_ms, unknown_ttl_ms, until, cause, status, headers, body, completed_at, waited, created_at,
         updated_at) = (
            SELECT CASE WHEN c.act IN ('lost', 'held') THEN 'unknown' ELSE 'claimed' END,
                   CASE c.act WHEN 'lost' THEN e.token ELSE excluded.token END,
                   CASE c.act WHEN 'fresh'
                       THEN greatest(e.fence + 1, (extract(epoch FROM c.now) * 1000000)::int8)
                       ELSE e.fence END,
                   CASE WHEN c.act IN ('fresh', 'held') THEN excluded.scheme ELSE e.scheme END,
                   CASE WHEN c.act IN ('fresh', 'held') THEN excluded.fingerprint ELSE e.fingerprint END,
                   CASE WHEN c.act IN ('fresh', 'held') THEN excluded.scope ELSE e.scope END,
                   -- A token that lost its claim or gave it back is remembered; the oldest of more
                   -- than eight is dropped.
                   CASE WHEN c.act = 'fresh' AND e.state IN ('claimed', 'released')
                             AND e.token <> excluded.token AND e.token <> ALL (e.dead_tokens)
                       THEN (e.dead_tokens || e.token)[greatest(1, cardinality(e.dead_tokens) - 6):]
                       ELSE e.dead_tokens END,
                   CASE WHEN c.act IN ('lost', 'held') THEN NULL
                       WHEN c.act = 'again' THEN
                           -- Every claim writes an end of its own: claim_give_back tells them apart.
                           CASE WHEN e.lease_until = c.now + excluded.claim_ttl_ms * interval '1 millisecond'
                               THEN e.lease_until + interval '1 microsecond'
                               ELSE c.now + excluded.claim_ttl_ms * interval '1 millisecond' END
                       ELSE c.now + excluded.claim_ttl_ms * interval '1 millisecond' END,
                   -- The proposed row carries max_run as the distance between its two ends.
                   CASE WHEN c.act IN ('lost', 'held') THEN NULL
                       WHEN c.act = 'again' THEN
                           greatest(e.run_until, c.now + excluded.claim_ttl_ms * interval '1 millisecond'
                                                 + (excluded.run_until - excluded.lease_until))
                       ELSE c.now + excluded.claim_ttl_ms * interval '1 millisecond'
                            + (excluded.run_until - excluded.lease_until) END,
                   CASE WHEN c.act IN ('lost', 'held') THEN NULL WHEN c.act = 'again' THEN e.on_lost
                       ELSE excluded.on_lost END,
                   CASE WHEN c.act IN ('lost', 'held') THEN NULL ELSE excluded.claim_ttl_ms END,
                   CASE WHEN c.act IN ('lost', 'held') THEN NULL WHEN c.act = 'again' THEN e.unknown_ttl_ms
                       ELSE excluded.unknown_ttl_ms END,
                   CASE c.act WHEN 'lost' THEN c.now + e.unknown_ttl_ms * interval '1 millisecond'
                       WHEN 'held' THEN excluded.until ELSE 'infinity' END,
                   CASE c.act WHEN 'lost' THEN 'lease_expired' WHEN 'held' THEN 'held' END,
                   NULL::int2, NULL::bytea, NULL::bytea, NULL::timestamptz,
                   -- Whoever waited for a released claim has been told; a take-over ends nobody's waiting.
                   CASE WHEN c.act IN ('fresh', 'held') AND e.state <> 'claimed' THEN false ELSE e.waited END,
                   CASE WHEN c.act IN ('fresh', 'held') THEN c.now ELSE e.created_at END,
                   c.now
            FROM (SELECT coalesce($12::timestamptz, clock_timestamp()) AS now,
                         -- The condition below has decided that one of these is right; which one
                         -- it is does not depend on the time.
                         CASE WHEN e.state = 'claimed' AND e.token = excluded.token THEN 'again'
                              WHEN e.state = 'claimed'
                                   AND (e.on_lost = 'hold' OR excluded.state = 'unknown'
                                        OR EXISTS (SELECT FROM fencepost.holds AS o
                                                   WHERE o.lifted_at IS NULL AND o.since >= e.created_at
                                                     AND (o.prefix IS NULL
                                                          OR o.prefix = split_part(e.key, ':', 1)))) THEN 'lost'
                              WHEN excluded.state = 'unknown' THEN 'held'
                              ELSE 'fresh' END AS act) AS c
        )
    WHERE (e.state = 'claimed' AND e.token = excluded.token AND excluded.state = 'claimed')
       OR ((e.until <= coalesce($12::timestamptz, clock_timestamp())
            OR (e.state = 'released' AND e.token <> excluded.token))
           AND excluded.token <> ALL (e.dead_tokens))
       OR (e.state = 'claimed' AND e.token <> excluded.token
           AND e.lease_until <= coalesce($12::timestamptz, clock_timestamp())
           AND e.claim_ttl_ms <= $10::int8
           AND (e.on_lost = 'hold'
                OR (e.scheme = excluded.scheme AND e.fingerprint = excluded.fingerprint
                    AND e.run_until <= coalesce($12::timestamptz, clock_timestamp())
                    AND excluded.token <> ALL (e.dead_tokens))))
    RETURNING e.key, e.state, e.token, e.fence, e.scheme, e.fingerprint, e.scope, e.dead_tokens, e.lease_until,
        e.run_until, e.on_lost, e.claim_ttl_ms, e.unknown_ttl_ms, e.until, e.cause, e.waited, e.created_at, e.updated_at
)
SELECT true AS wrote, w.waited, w.updated_at AS now, w.key, w.state, w.token, w.fence, w.scheme, w.fingerprint, w.scope,
       w.dead_tokens, w.lease_until, w.run_until, w.on_lost, w.claim_ttl_ms, w.unknown_ttl_ms, w.until, w.cause,
       NULL::int2 AS status, NULL::bytea AS headers, NULL::bytea AS body, NULL::timestamptz AS completed_at,
       w.created_at, w.updated_at
FROM written AS w
UNION ALL
SELECT false, false, s.now, s.asked_key, s.state, s.token, s.fence, s.scheme, s.fingerprint, s.scope,
       s.dead_tokens, s.lease_until, s.run_until, s.on_lost, s.claim_ttl_ms, s.unknown_ttl_ms, s.until, s.cause,
       s.status, s.headers,
       -- The answer goes to those only who may see it, and a long one travels alone.
       CASE WHEN octet_length(s.body) <= $11::int4
                 AND (s.token = s.asked_token
                      OR (s.scheme = s.asked_scheme AND s.fingerprint = s.asked_fingerprint))
           THEN s.body END,
       s.completed_at, s.created_at, s.updated_at
FROM seen AS s
WHERE NOT EXISTS (SELECT FROM written AS w WHERE w.key = s.asked_key)
