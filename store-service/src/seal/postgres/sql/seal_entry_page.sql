-- seal_entry_page: the next entries in the order of their keys, and how each begins that has an answer.
--
-- Isolation: any. Locks: none. Bounded by $2 rows, with or without an answer; answers are not read.
SELECT e.key AS name, substr(e.headers, 1, 18) AS head
FROM fencepost.entries AS e
WHERE e.key > $1::text
ORDER BY e.key
LIMIT $2::int8
