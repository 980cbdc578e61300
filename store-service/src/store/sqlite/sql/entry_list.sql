-- Live entries in the order of their keys, without their answers. ?1 state, ?2 prefixes as a JSON
-- list, ?3 scope, ?4 keys behind this one (each null: any), ?5 now, ?6 limit.
SELECT key, state, token, fence, scheme, fingerprint, scope, dead_tokens,
       lease_until, run_until, on_lost, claim_ttl_ms, unknown_ttl_ms,
       until, cause, status, x'' AS headers, x'' AS body, completed_at, created_at, updated_at,
       coalesce(length(headers), 0) AS headers_len, coalesce(length(body), 0) AS body_len
FROM entries
WHERE (until IS NULL OR until > ?5)
  AND (?1 IS NULL OR state = ?1)
  AND (?2 IS NULL OR substr(key, 1, instr(key, ':') - 1) IN (SELECT value FROM json_each(?2)))
  AND (?3 IS NULL OR scope = ?3)
  AND (?4 IS NULL OR key > ?4)
ORDER BY key
LIMIT ?6
