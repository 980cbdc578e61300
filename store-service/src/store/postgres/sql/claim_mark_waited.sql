-- claim_mark_waited: callers of this instance wait for these claims.
--
-- Purpose: whoever ends such a claim tells the other instances, and nobody is told about claims
-- that no one waits for.
-- Invariants: a mark is written at most once for each claim, by whichever instance comes first.
-- Isolation: READ COMMITTED, one statement. The condition is checked again on the locked row: a
-- claim that has ended meanwhile is not marked. `waited` in the answer is true only for a row that
-- was claimed and marked after the caller began to listen, so its end will be told.
-- Locks: the rows that are not marked yet, in the order of the keys.
-- Outcomes: one row for each key; not `waited`: the claim has ended, read it again.
--
-- $1 keys (sorted, none twice)
WITH unmarked AS MATERIALIZED (
    SELECT l.key
    FROM (
        SELECT r.key
        FROM (SELECT k.key FROM unnest($1::text[]) AS k (key) ORDER BY k.key COLLATE "C") AS a
        CROSS JOIN LATERAL (
            SELECT e.key
            FROM fencepost.entries AS e
            WHERE e.key = a.key AND e.state = 'claimed' AND NOT e.waited
            FOR UPDATE
        ) AS r
        OFFSET 0
    ) AS l
),
marked AS (
    UPDATE fencepost.entries AS e SET waited = true FROM unmarked AS u WHERE e.key = u.key RETURNING e.key
)
SELECT a.key, m.key IS NOT NULL OR coalesce(s.waited, false) AS waited
FROM unnest($1::text[]) AS a (key)
LEFT JOIN marked AS m ON m.key = a.key
LEFT JOIN LATERAL (
    SELECT r.waited FROM fencepost.entries AS r WHERE r.key = a.key AND r.state = 'claimed' OFFSET 0
) AS s ON true
