-- For how long the oldest row past its end has been past it, in microseconds; 0 where there is none.
-- ?1 now.
SELECT max(0, coalesce((
    SELECT ?1 - until
    FROM entries
    WHERE state <> 'claimed'
    ORDER BY until
    LIMIT 1
), 0))
