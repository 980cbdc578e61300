-- seal_entry_page: the next entries in the order of their keys, and how each begins that has an answer.
SELECT e.key AS name, substr(e.headers, 1, 18) AS head FROM entries AS e
WHERE e.key > ?1 ORDER BY e.key LIMIT ?2
