-- grant_list: grants in the order of their names, for people: what was recorded at issue, joined with
-- what was claimed.
--
-- ?1 state ?2 issuer ?3 tenant ?4 subject ?5 to ?7 name of the only one ?8 to ?10 names behind this one
-- (each null: any) ?11 limit ?12 now ?13 held (null: any). What `held` says: see the PostgreSQL statement.
SELECT g.issuer, g.key_tenant, g.grant_id, g.form, g.tenant, g.subject, g.bound, g.issued_at, g.expires_at,
       g.used_at, g.revoked_at, g.operation_id,
       g.used_at IS NULL AND g.revoked_at IS NULL AND (g.expires_at IS NULL OR g.expires_at > ?12)
           AND EXISTS (
               SELECT 1 FROM holds AS h
               WHERE h.lifted_at IS NULL AND h.grants AND h.since >= g.issued_at
                 AND NOT EXISTS (
                     SELECT 1 FROM desk_audit AS l
                     WHERE l.subject = 'grant ' || json_array(g.issuer, g.key_tenant, g.grant_id)
                       AND l.action = 'release_grant' AND l.at >= h.began_at)
           ) AS held
FROM (
    SELECT issuer, key_tenant, grant_id, i.form, i.tenant, i.subject, i.bound, i.issued_at, i.expires_at,
           CASE WHEN i.consumed_at IS NOT NULL THEN i.consumed_at
                WHEN c.operation_id IS NOT NULL THEN c.consumed_at END AS used_at,
           CASE WHEN i.revoked_at IS NOT NULL THEN i.revoked_at
                WHEN c.consumed_at IS NOT NULL AND c.operation_id IS NULL THEN c.consumed_at END AS revoked_at,
           coalesce(i.consumed_by_operation, c.operation_id) AS operation_id
    FROM issued_grants AS i
    FULL JOIN grant_consumptions AS c USING (issuer, key_tenant, grant_id)
) AS g
WHERE (?1 IS NULL
       OR ?1 = CASE WHEN g.used_at IS NOT NULL THEN 'used' WHEN g.revoked_at IS NOT NULL THEN 'revoked'
                    WHEN g.expires_at <= ?12 THEN 'expired' ELSE 'open' END)
  AND (?2 IS NULL OR g.issuer = ?2)
  AND (?3 IS NULL OR g.tenant = ?3)
  AND (?4 IS NULL OR g.subject = ?4)
  AND (?5 IS NULL OR (g.issuer = ?5 AND g.key_tenant = ?6 AND g.grant_id = ?7))
  AND (?8 IS NULL OR (g.issuer, g.key_tenant, g.grant_id) > (?8, ?9, ?10))
  AND (?13 IS NULL OR held = ?13)
ORDER BY g.issuer, g.key_tenant, g.grant_id
LIMIT ?11
