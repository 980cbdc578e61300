-- entry_list: live entries in the order of their keys, without their answers.
--
-- Isolation: any. Locks: none.
-- Outcomes: at most $5 rows.
--
-- $1 state (null: any) $2 prefixes (null: any) $3 scope (null: any) $4 keys behind this one (null: all)
-- $5 limit $6 now (null: the database's clock)
SELECT false AS wrote, false AS waited, c.now, e.key, e.state, e.token, e.fence, e.scheme, e.fingerprint, e.scope,
       e.dead_tokens, e.lease_until, e.run_until, e.on_lost, e.claim_ttl_ms, e.unknown_ttl_ms, e.until, e.cause,
       e.status, NULL::bytea AS headers, NULL::bytea AS body,
       coalesce(octet_length(e.headers), 0)::int8 AS headers_len,
       coalesce(octet_length(e.body), 0)::int8 AS body_len, e.completed_at, e.created_at, e.updated_at
FROM (SELECT coalesce($6::timestamptz, clock_timestamp()) AS now) AS c
CROSS JOIN fencepost.entries AS e
WHERE e.until > c.now
  AND ($1::text IS NULL OR e.state = $1::text)
  AND ($2::text[] IS NULL OR split_part(e.key, ':', 1) = ANY ($2::text[]))
  AND ($3::bytea IS NULL OR e.scope = $3::bytea)
  AND ($4::text IS NULL OR e.key > $4::text COLLATE "C")
ORDER BY e.key
LIMIT $5::int8
