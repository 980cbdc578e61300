-- grant_list: grants in the order of their names, for people: what was recorded at issue, joined with
-- what was claimed.
--
-- `held`: the grant is open, and a hold that stands refuses it, by the time of issue that was recorded. A
-- token's own time, which admission goes by, may lie a little before.
-- Isolation: any. Locks: none.
-- Outcomes: at most $11 rows.
--
-- $1 state $2 issuer $3 tenant $4 subject $5 to $7 name of the only one $8 to $10 names behind this one
-- (each null: any) $11 limit $12 held? (null: any)
SELECT g.issuer, g.key_tenant, g.grant_id, g.form, g.tenant, g.subject, g.bound, g.issued_at, g.expires_at,
       g.used_at, g.revoked_at, g.operation_id, w.held, n.now
FROM (SELECT clock_timestamp() AS now) AS n
CROSS JOIN (
    SELECT issuer, key_tenant, grant_id, i.form, i.tenant, i.subject, i.bound, i.issued_at, i.expires_at,
           CASE WHEN i.consumed_at IS NOT NULL THEN i.consumed_at
                WHEN c.operation_id IS NOT NULL THEN c.consumed_at END AS used_at,
           CASE WHEN i.revoked_at IS NOT NULL THEN i.revoked_at
                WHEN c.consumed_at IS NOT NULL AND c.operation_id IS NULL THEN c.consumed_at END AS revoked_at,
           coalesce(i.consumed_by_operation, c.operation_id)::text AS operation_id
    FROM fencepost.issued_grants AS i
    FULL JOIN fencepost.grant_consumptions AS c USING (issuer, key_tenant, grant_id)
) AS g
CROSS JOIN LATERAL (
    SELECT g.used_at IS NULL AND g.revoked_at IS NULL AND (g.expires_at IS NULL OR g.expires_at > n.now)
           AND EXISTS (
               SELECT FROM fencepost.holds AS h
               WHERE h.lifted_at IS NULL AND h.grants AND h.since >= g.issued_at
                 AND NOT EXISTS (
                     SELECT FROM fencepost.desk_audit AS l
                     -- The subject as the service writes it: JSON without spaces.
                     WHERE l.subject = 'grant [' || to_json(g.issuer)::text || ',' || to_json(g.key_tenant)::text
                                       || ',' || to_json(g.grant_id)::text || ']'
                       AND l.action = 'release_grant' AND l.at >= h.began_at)
           ) AS held
) AS w
WHERE ($1::text IS NULL
       OR $1::text = CASE WHEN g.used_at IS NOT NULL THEN 'used' WHEN g.revoked_at IS NOT NULL THEN 'revoked'
                          WHEN g.expires_at <= n.now THEN 'expired' ELSE 'open' END)
  AND ($2::text IS NULL OR g.issuer = $2::text)
  AND ($3::text IS NULL OR g.tenant = $3::text)
  AND ($4::text IS NULL OR g.subject = $4::text)
  AND ($5::text IS NULL OR (g.issuer = $5::text AND g.key_tenant = $6::text AND g.grant_id = $7::text))
  AND ($8::text IS NULL OR (g.issuer, g.key_tenant, g.grant_id) > ($8::text, $9::text, $10::text))
  AND ($12::bool IS NULL OR w.held = $12::bool)
ORDER BY g.issuer, g.key_tenant, g.grant_id
LIMIT $11::int8
