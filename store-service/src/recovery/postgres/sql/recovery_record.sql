-- recovery_record: how an operation went, as recovery found out, with the answer of its run where that
-- is known, and a note of it. All or nothing.
--
-- Invariants: those of operation_record: only by its owner and from the expected status, which is
-- never a final one; so a recoverer that was replaced changes nothing, and nothing overwrites an end.
-- Isolation: READ COMMITTED, one statement: a second writer waits and looks at the row again.
-- Locks: the operation's row.
-- Outcomes: a row: recorded. None: it did not apply.
--
-- $1 operation id $2 owner version $3 expected status $4 outcome $5 reference $6 actor $7 what was known
-- $8 detail $9 status of the answer (null: none) $10 its header block $11 its body
WITH recorded AS (
    UPDATE fencepost.operations AS o
    SET status = $4::text, reference = coalesce($5::text, o.reference), answer_status = $9::int4,
        answer_headers = $10::bytea, answer_body = $11::bytea, updated_at = clock_timestamp()
    WHERE o.operation_id = $1::text::uuid
      AND o.owner_version = $2::int4
      AND o.status = $3::text
      AND o.status IN ('admitted', 'unknown')
    RETURNING o.operation_id, o.owner_version, o.status, o.updated_at
),
noted AS (
    INSERT INTO fencepost.operation_events
        (at, operation_id, owner_version, actor, step, result, status, detail)
    SELECT r.updated_at, r.operation_id, r.owner_version, $6::text, 'record', $7::text, r.status, $8::text
    FROM recorded AS r
)
SELECT r.owner_version FROM recorded AS r
