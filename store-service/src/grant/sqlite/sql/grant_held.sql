-- grant_held: does a hold stand over a grant that no person has spoken for since it began?
--
-- ?1 issuer ?2 key_tenant ?3 grant_id ?4 earliest time of issue (null: the row's own) ?5 subject of
-- the audit about it
SELECT EXISTS (
    SELECT 1 FROM holds AS h
    WHERE h.lifted_at IS NULL AND h.grants
      AND h.since >= coalesce(?4, (SELECT i.issued_at FROM issued_grants AS i
                                   WHERE i.issuer = ?1 AND i.key_tenant = ?2 AND i.grant_id = ?3))
      AND NOT EXISTS (SELECT 1 FROM desk_audit AS l
                      WHERE l.subject = ?5 AND l.action = 'release_grant' AND l.at >= h.began_at)
)
