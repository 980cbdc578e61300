-- entry_list: live entries in the order of their keys, without their answers.
--
-- `held`: a hold that stands, and that no person has spoken against for this key, would keep a new request
-- with it from running. The conditions are those of claim_acquire.
-- Isolation: any. Locks: none.
-- Outcomes: at most $5 rows.
--
-- $1 state (null: any) $2 prefixes (null: any) $3 scope (null: any) $4 keys behind this one (null: all)
-- $5 limit $6 now (null: the database's clock) $7 cause (null: any) $8 held? (null: any)
-- $9 age since the claim, at least, in milliseconds (null: any)
SELECT false AS wrote, false AS waited, c.now, e.key, e.state, e.token, e.fence, e.scheme, e.fingerprint, e.scope,
       e.dead_tokens, e.lease_until, e.run_until, e.on_lost, e.claim_ttl_ms, e.unknown_ttl_ms, e.until, e.cause,
       e.status, NULL::bytea AS headers, NULL::bytea AS body,
       coalesce(octet_length(e.headers), 0)::int8
           - CASE WHEN substr(e.headers, 1, 1) = '\xf5' THEN 46 ELSE 0 END AS headers_len,
       coalesce(octet_length(e.body), 0)::int8 AS body_len, e.completed_at, e.created_at, e.updated_at, h.held
FROM (SELECT coalesce($6::timestamptz, clock_timestamp()) AS now) AS c
CROSS JOIN fencepost.entries AS e
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM fencepost.holds AS o
        WHERE o.lifted_at IS NULL
          AND (o.prefix IS NULL OR o.prefix = split_part(e.key, ':', 1))
          AND (((e.state = 'released' OR (e.state = 'unknown' AND e.cause = 'held')) AND o.keys_until > c.now)
               OR (e.state = 'claimed' AND e.on_lost = 'rerun'
                   AND (o.keys_until > c.now OR e.created_at <= o.since)))
          AND NOT EXISTS (SELECT FROM fencepost.entry_audit AS l
                          WHERE l.key = e.key AND l.at >= o.began_at AND l.state_after = 'released')
    ) AS held
) AS h
WHERE e.until > c.now
  AND ($1::text IS NULL OR e.state = $1::text)
  AND ($2::text[] IS NULL OR split_part(e.key, ':', 1) = ANY ($2::text[]))
  AND ($3::bytea IS NULL OR e.scope = $3::bytea)
  AND ($4::text IS NULL OR e.key > $4::text COLLATE "C")
  AND ($7::text IS NULL OR e.cause = $7::text)
  AND ($8::bool IS NULL OR h.held = $8::bool)
  AND ($9::int8 IS NULL OR e.created_at <= c.now - $9::int8 * interval '1 millisecond')
ORDER BY e.key
LIMIT $5::int8
