-- Keys of rows past their end, oldest first. ?1 now, ?2 limit.
SELECT key
FROM entries
WHERE state <> 'claimed'
  AND until <= ?1
ORDER BY until
LIMIT ?2
