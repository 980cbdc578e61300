-- consumption_cleanup: records of use go, once no admission can succeed without them. In the write
-- lock, which every admission takes as well and keeps to its commit.
--
-- ?1 retain_until before which they go ?2 limit
DELETE FROM grant_consumptions
WHERE (issuer, key_tenant, grant_id) IN (
    SELECT c.issuer, c.key_tenant, c.grant_id FROM grant_consumptions AS c
    WHERE c.retain_until < ?1 ORDER BY c.retain_until LIMIT ?2
)
