-- issued_archive: rows that were grants lose what they bound, long after they could be admitted, and
-- keep their key. In the write lock, which every admission takes as well and keeps to its commit.
--
-- ?1 deadline before which they go ?2 limit ?3 now
UPDATE issued_grants SET archived_at = ?3, tenant = '', subject = '', bound = '{}'
WHERE (issuer, key_tenant, grant_id) IN (
    SELECT g.issuer, g.key_tenant, g.grant_id FROM issued_grants AS g
    WHERE g.form = 'row' AND g.archived_at IS NULL
      AND g.expires_at < ?1 AND g.expires_at + g.leeway_ms * 1000 < ?1
    ORDER BY g.expires_at LIMIT ?2
)
RETURNING issuer, consumed_at, expires_at
