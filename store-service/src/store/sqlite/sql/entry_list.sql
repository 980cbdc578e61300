-- Live entries in the order of their keys, without their answers, and whether a hold that stands keeps them
-- from running (the conditions are those of a claim under a hold). ?1 state, ?2 prefixes as a JSON list,
-- ?3 scope, ?4 keys behind this one (each null: any), ?5 now, ?6 limit, ?7 cause, ?8 held,
-- ?9 claimed by then (each null: any).
SELECT e.*
FROM (
    SELECT key, state, token, fence, scheme, fingerprint, scope, dead_tokens,
           lease_until, run_until, on_lost, claim_ttl_ms, unknown_ttl_ms,
           until, cause, status, x'' AS headers, x'' AS body, completed_at, created_at, updated_at,
           coalesce(length(headers), 0)
               - CASE WHEN substr(headers, 1, 1) = x'F5' THEN 46 ELSE 0 END AS headers_len,
           coalesce(length(body), 0) AS body_len,
           EXISTS (
               SELECT 1 FROM holds AS o
               WHERE o.lifted_at IS NULL
                 AND (o.prefix IS NULL OR o.prefix = substr(entries.key, 1, instr(entries.key, ':') - 1))
                 AND (((entries.state = 'released' OR (entries.state = 'unknown' AND entries.cause = 'held'))
                       AND o.keys_until > ?5)
                      OR (entries.state = 'claimed' AND entries.on_lost = 'rerun'
                          AND (o.keys_until > ?5 OR entries.created_at <= o.since)))
                 AND NOT EXISTS (SELECT 1 FROM entry_audit AS l
                                 WHERE l.key = entries.key AND l.at >= o.began_at AND l.state_after = 'released')
           ) AS held
    FROM entries
    WHERE (until IS NULL OR until > ?5)
      AND (?1 IS NULL OR state = ?1)
      AND (?2 IS NULL OR substr(key, 1, instr(key, ':') - 1) IN (SELECT value FROM json_each(?2)))
      AND (?3 IS NULL OR scope = ?3)
      AND (?4 IS NULL OR key > ?4)
      AND (?7 IS NULL OR cause = ?7)
      AND (?9 IS NULL OR created_at <= ?9)
) AS e
WHERE ?8 IS NULL OR e.held = ?8
ORDER BY e.key
LIMIT ?6
