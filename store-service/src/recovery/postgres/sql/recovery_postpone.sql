-- recovery_postpone: nothing is settled yet; recovery comes back later, and notes it.
--
-- Purpose: its lease becomes the time of rest: at its end any instance may take the operation over.
-- Invariants: only by its owner while it is open; the version stays, so the original handler and
-- every recoverer before stay replaced.
-- Isolation: READ COMMITTED, one statement. Locks: the operation's row.
-- Outcomes: a row: postponed. None: it did not apply.
--
-- $1 operation id $2 owner version $3 rest (ms) $4 is the attempt counted? $5 actor $6 what was known
-- $7 detail
WITH rested AS (
    UPDATE fencepost.operations AS o
    SET lease_until = clock_timestamp() + $3::int8 * interval '1 millisecond',
        recovery_attempts = o.recovery_attempts + CASE WHEN $4::bool THEN 1 ELSE 0 END,
        updated_at = clock_timestamp()
    WHERE o.operation_id = $1::text::uuid
      AND o.owner_version = $2::int4
      AND o.status IN ('admitted', 'unknown')
    RETURNING o.operation_id, o.owner_version, o.status, o.updated_at
),
noted AS (
    INSERT INTO fencepost.operation_events
        (at, operation_id, owner_version, actor, step, result, status, detail)
    SELECT r.updated_at, r.operation_id, r.owner_version, $5::text, 'postpone', $6::text, r.status, $7::text
    FROM rested AS r
)
SELECT r.owner_version FROM rested AS r
