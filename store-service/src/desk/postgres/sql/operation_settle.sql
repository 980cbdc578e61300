-- operation_settle: a person ends an operation that the service can't, or has recovery look again.
--
-- Purpose: write the end, or `unknown` with its attempts and its lease gone, exactly as long as the operation
-- is what the person saw; and write down who did it and why.
-- Invariants: another version than the one that was seen is never changed, a final status neither;
-- nobody says `failed` while an owner's lease lives, and nothing at all about an admitted operation;
-- a lease that is recovery's rest counts for nothing. Nothing happens that the history does not have. An
-- owner's later call finds a final status: it can't change it, and nothing is sent.
-- Isolation: READ COMMITTED, one statement; the version is compared on the locked row, and only
-- then the clock is read.
-- Locks: the operation's row, if it has the version.
-- Outcomes: one row; `wrote`: done. Not: the row after it says why.
--
-- $1 operation id $2 owner and $3 time of the version $4 status $5 reference (null: as it is)
-- $6 who $7 action $8 reason
WITH locked AS MATERIALIZED (
    SELECT l.*, clock_timestamp() AS now,
           -- Recovery put it aside with this very change, and as this owner it has sent nothing.
           EXISTS (SELECT FROM fencepost.operation_events AS r
                   WHERE r.operation_id = l.operation_id AND r.owner_version = l.owner_version
                     AND r.step = 'postpone' AND r.at = l.updated_at)
           AND NOT EXISTS (SELECT FROM fencepost.operation_events AS r
                           WHERE r.operation_id = l.operation_id AND r.owner_version = l.owner_version
                             AND r.step = 'submit') AS resting
    FROM (
        SELECT o.operation_id, o.status, o.lease_until, o.owner_version, o.updated_at
        FROM fencepost.operations AS o
        WHERE o.operation_id = $1::text::uuid AND o.owner_version = $2::int4 AND o.updated_at = $3::timestamptz
        FOR UPDATE
        OFFSET 0
    ) AS l
),
due AS (
    SELECT l.*
    FROM locked AS l
    WHERE l.status = 'needs_reconciliation'
       -- Recovery is told to look again about what waits for a person, and nothing else.
       OR ($4::text <> 'unknown' AND l.status IN ('admitted', 'unknown')
           AND (l.lease_until <= l.now OR l.resting OR (l.status = 'unknown' AND $4::text = 'succeeded')))
),
written AS (
    UPDATE fencepost.operations AS o
    SET status = $4::text, reference = coalesce($5::text, o.reference), updated_at = d.now,
        recovery_attempts = CASE $4::text WHEN 'unknown' THEN 0 ELSE o.recovery_attempts END,
        lease_until = CASE $4::text WHEN 'unknown' THEN least(o.lease_until, d.now) ELSE o.lease_until END
    FROM due AS d
    WHERE o.operation_id = d.operation_id
    RETURNING o.operation_id, o.owner_version
),
noted AS (
    INSERT INTO fencepost.operation_events (at, operation_id, owner_version, actor, step, result, status, detail)
    SELECT d.now, d.operation_id, w.owner_version, $6::text, $7::text, d.status, $4::text, $8::text
    FROM due AS d JOIN written AS w ON w.operation_id = d.operation_id
    RETURNING id
)
SELECT EXISTS (SELECT FROM written) AND EXISTS (SELECT FROM noted) AS wrote
