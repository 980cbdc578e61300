-- The row of one key. Read inside the write transaction that decides about it.
SELECT state, token, fence, scheme, fingerprint, scope, dead_tokens,
       lease_until, run_until, on_lost, claim_ttl_ms, unknown_ttl_ms,
       until, cause, status, headers, body, completed_at, created_at, updated_at
FROM entries
WHERE key = ?1
