-- entry_show: one entry as a person sees it.
--
-- Isolation: any. Locks: none.
-- Outcomes: one row, or none where there is no live entry.
--
-- $1 key $2 with the answer? $3 now (null: the database's clock)
SELECT false AS wrote, false AS waited, c.now, e.key, e.state, e.token, e.fence, e.scheme, e.fingerprint, e.scope,
       e.dead_tokens, e.lease_until, e.run_until, e.on_lost, e.claim_ttl_ms, e.unknown_ttl_ms, e.until, e.cause,
       e.status, CASE WHEN $2::bool THEN e.headers END AS headers, CASE WHEN $2::bool THEN e.body END AS body,
       coalesce(octet_length(e.headers), 0)::int8
           - CASE WHEN substr(e.headers, 1, 1) = '\xf5' THEN 46 ELSE 0 END AS headers_len,
       coalesce(octet_length(e.body), 0)::int8 AS body_len, e.completed_at, e.created_at, e.updated_at
FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) AS c
CROSS JOIN fencepost.entries AS e
WHERE e.key = $1::text AND e.until > c.now
