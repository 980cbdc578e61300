-- What the holds that stand say about a key that no person has freed since they began. ?1 key,
-- ?2 its prefix. One row; nulls where nothing is held.
SELECT max(o.since) AS since, max(o.keys_until) AS keys_until
FROM holds AS o
WHERE o.lifted_at IS NULL
  AND (o.prefix IS NULL OR o.prefix = ?2)
  AND NOT EXISTS (SELECT 1 FROM entry_audit AS l
                  WHERE l.key = ?1 AND l.at >= o.began_at AND l.state_after = 'released')
