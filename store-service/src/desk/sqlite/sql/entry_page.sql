-- entry_page: the next rows to look at, in the order of their keys.
--
-- ?1 keys behind this one (null: all) ?2 how many
SELECT e.key, e.scope, e.state, e.until FROM entries AS e
WHERE ?1 IS NULL OR e.key > ?1
ORDER BY e.key
LIMIT ?2
