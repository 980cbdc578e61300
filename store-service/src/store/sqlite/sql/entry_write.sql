-- Writes the row of one key as a transition made it. The write lock is held since before the row
-- was read, so nothing can have changed between.
INSERT INTO entries (key, state, token, fence, scheme, fingerprint, scope, dead_tokens,
                     lease_until, run_until, on_lost, claim_ttl_ms, unknown_ttl_ms,
                     until, cause, status, headers, body, completed_at, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)
ON CONFLICT (key) DO UPDATE SET
    state = excluded.state, token = excluded.token, fence = excluded.fence, scheme = excluded.scheme,
    fingerprint = excluded.fingerprint, scope = excluded.scope, dead_tokens = excluded.dead_tokens,
    lease_until = excluded.lease_until, run_until = excluded.run_until, on_lost = excluded.on_lost,
    claim_ttl_ms = excluded.claim_ttl_ms, unknown_ttl_ms = excluded.unknown_ttl_ms,
    until = excluded.until, cause = excluded.cause, status = excluded.status, headers = excluded.headers,
    body = excluded.body, completed_at = excluded.completed_at, created_at = excluded.created_at,
    updated_at = excluded.updated_at
