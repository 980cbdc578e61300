-- entry_erase: replaces the stored answers of one caller, in one bounded batch; and who says so.
--
-- Purpose: what the application said goes; that the key was used stays.
-- Invariants: only an answer that is still live is replaced, and only by the marker; claims, unknown
-- outcomes and released keys are counted and left. The version changes, so nobody acts on what was.
-- Isolation: READ COMMITTED, one statement; a row that changed is looked at again when locked.
-- Locks: the rows that are replaced, in the order of their keys.
-- Outcomes: one row: how many were replaced, left and looked at, and the last key that was looked at.
--
-- $1 scope $2 prefixes (null: any) $3 keys behind this one (null: all) $4 how many rows to look at
-- $5 status, $6 headers and $7 body of the marker $8 who $9 subject $10 reason
WITH page AS MATERIALIZED (
    SELECT e.key, e.scope, e.state
    FROM fencepost.entries AS e
    WHERE $3::text IS NULL OR e.key > $3::text COLLATE "C"
    ORDER BY e.key
    LIMIT $4::int8
),
mine AS MATERIALIZED (
    SELECT p.key, p.state
    FROM page AS p
    WHERE p.scope = $1::bytea AND ($2::text[] IS NULL OR split_part(p.key, ':', 1) = ANY ($2::text[]))
),
due AS MATERIALIZED (
    SELECT e.key
    FROM fencepost.entries AS e
    WHERE e.key IN (SELECT m.key FROM mine AS m WHERE m.state = 'completed')
      AND e.scope = $1::bytea AND e.state = 'completed' AND e.until > clock_timestamp()
      AND (e.status, e.headers, e.body) IS DISTINCT FROM ($5::int2, $6::bytea, $7::bytea)
    ORDER BY e.key
    FOR UPDATE
),
written AS (
    UPDATE fencepost.entries AS e
    SET status = $5::int2, headers = $6::bytea, body = $7::bytea, updated_at = clock_timestamp()
    FROM due AS d
    WHERE e.key = d.key
    RETURNING e.key
),
counted AS (
    SELECT (SELECT count(*) FROM written) AS answers,
           (SELECT count(*) FROM mine AS m WHERE m.state IN ('claimed', 'unknown')) AS entries_left,
           (SELECT count(*) FROM page) AS looked, (SELECT max(p.key) FROM page AS p) AS last
),
noted AS (
    INSERT INTO fencepost.desk_audit (at, who, action, subject, version_before, state_before, state_after, reason)
    SELECT clock_timestamp(), $8::text, 'erase', $9::text, '', 'completed', c.answers || ' answers erased', $10::text
    FROM counted AS c
    WHERE c.answers > 0
)
SELECT c.answers, c.entries_left, c.looked, c.last FROM counted AS c
