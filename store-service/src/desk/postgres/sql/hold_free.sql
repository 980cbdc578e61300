-- hold_free: frees keys that a lifted hold has held, in one bounded batch; and who says so.
--
-- Purpose: what nobody holds any more may run; each key with its own line in the audit, as if a
-- person had freed it.
-- Invariants: nothing is freed while the hold stands, nor a key that another standing hold would hold
-- (the same condition by which claim_acquire holds); nothing but a key that a hold made unknown since
-- this one began.
-- Isolation: READ COMMITTED, one statement; a row that changed is looked at again when locked. Holds are
-- read by the statement's snapshot: a hold that begins beside it is not seen, as by any statement.
-- Locks: the rows that are freed, in the order of their keys.
-- Outcomes: one row: how the hold stands (null: there is none), how many keys were freed and kept, how
-- many were looked at, and the last of them.
--
-- $1 id $2 keys behind this one (null: all) $3 how many keys to look at $4 cause $5 lifetime of a freed
-- key (ms) $6 who $7 reason
WITH hold AS MATERIALIZED (
    SELECT h.id, h.prefix, h.began_at, h.lifted_at IS NOT NULL AS lifted
    FROM fencepost.holds AS h
    WHERE h.id = $1::int8
),
page AS MATERIALIZED (
    SELECT e.key, e.cause, e.until, e.updated_at
    FROM fencepost.entries AS e
    WHERE e.state = 'unknown' AND ($2::text IS NULL OR e.key > $2::text COLLATE "C")
      AND (SELECT h.lifted FROM hold AS h)
    ORDER BY e.key
    LIMIT $3::int8
),
mine AS MATERIALIZED (
    SELECT p.key
    FROM page AS p
    CROSS JOIN hold AS h
    WHERE p.cause = 'held' AND p.until > clock_timestamp() AND p.updated_at >= h.began_at
      AND (h.prefix IS NULL OR h.prefix = split_part(p.key, ':', 1))
),
due AS MATERIALIZED (
    SELECT e.key, e.fence, e.updated_at
    FROM fencepost.entries AS e
    WHERE e.key IN (SELECT m.key FROM mine AS m)
      AND e.state = 'unknown' AND e.cause = 'held' AND e.until > clock_timestamp()
      AND NOT EXISTS (
          SELECT FROM fencepost.holds AS o
          WHERE o.lifted_at IS NULL AND o.keys_until > clock_timestamp()
            AND (o.prefix IS NULL OR o.prefix = split_part(e.key, ':', 1))
            AND NOT EXISTS (SELECT FROM fencepost.entry_audit AS l
                            WHERE l.key = e.key AND l.at >= o.began_at AND l.state_after = 'released')
      )
    ORDER BY e.key
    FOR UPDATE OF e
),
written AS (
    UPDATE fencepost.entries AS e
    SET state = 'released', cause = $4::text, until = clock_timestamp() + $5::int8 * interval '1 millisecond',
        updated_at = clock_timestamp()
    FROM due AS d
    WHERE e.key = d.key
    RETURNING e.key, e.updated_at AS now
),
noted AS (
    INSERT INTO fencepost.entry_audit
        (at, who, action, key, version_fence, version_updated_at, state_before, state_after, forced, reason)
    SELECT w.now, $6::text, 'release', d.key, d.fence, d.updated_at, 'unknown', 'released', false, $7::text
    FROM due AS d
    JOIN written AS w ON w.key = d.key
),
counted AS (
    SELECT (SELECT h.lifted FROM hold AS h) AS lifted, (SELECT count(*) FROM written) AS freed,
           (SELECT count(*) FROM mine) AS held, (SELECT count(*) FROM page) AS looked,
           (SELECT max(p.key) FROM page AS p) AS last
),
told AS (
    INSERT INTO fencepost.desk_audit (at, who, action, subject, version_before, state_before, state_after, reason)
    SELECT clock_timestamp(), $6::text, 'hold_free', 'hold ' || $1::int8, '', 'lifted', c.freed || ' keys freed', $7::text
    FROM counted AS c
    WHERE c.freed > 0
)
SELECT c.lifted, c.freed, c.held - c.freed AS kept, c.looked, c.last FROM counted AS c
