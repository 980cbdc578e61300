-- held_page: the next keys without an outcome, whether a lifted hold has held them, and whether a hold
-- that stands holds them still (the same condition as in hold_over).
--
-- ?1 keys behind this one (null: all) ?2 how many ?3 now ?4 prefix of the lifted hold (null: any)
-- ?5 when that hold began
SELECT e.key, e.fence, e.updated_at,
       e.cause = 'held' AND e.until > ?3 AND e.updated_at >= ?5
           AND (?4 IS NULL OR substr(e.key, 1, length(?4) + 1) = ?4 || ':') AS mine,
       EXISTS (
           SELECT 1 FROM holds AS o
           WHERE o.lifted_at IS NULL AND o.keys_until > ?3
             AND (o.prefix IS NULL OR substr(e.key, 1, length(o.prefix) + 1) = o.prefix || ':')
             AND NOT EXISTS (SELECT 1 FROM entry_audit AS l
                             WHERE l.key = e.key AND l.at >= o.began_at AND l.state_after = 'released')
       ) AS held_still
FROM entries AS e
WHERE e.state = 'unknown' AND (?1 IS NULL OR e.key > ?1)
ORDER BY e.key
LIMIT ?2
