-- operation_erase: replaces the stored answers of one caller's operations, in one bounded batch; and who
-- says so.
--
-- Purpose: what the application said goes; status, reference and the spent grant stay.
-- Invariants: only an answer that is there is replaced, and only by the marker; operations without an end
-- are counted and left. The version changes, and every operation's history has its line.
-- Isolation: READ COMMITTED, one statement; a row that changed is looked at again when locked.
-- Locks: the rows that are replaced, in the order of their ids.
-- Outcomes: one row: how many were replaced, left and looked at, and the last id that was looked at.
--
-- $1 what details that name the scope contain $2 caller's namespace and $3 id (null: by the details) $4 ids
-- behind this one (null: all) $5 how many rows to look at $6 status, $7 headers and $8 body of the marker
-- $9 who $10 subject $11 reason $12 step of the history
WITH page AS MATERIALIZED (
    SELECT o.operation_id, o.status, o.details, o.caller_namespace, o.caller_id
    FROM fencepost.operations AS o
    WHERE $4::text IS NULL OR o.operation_id > $4::text::uuid
    ORDER BY o.operation_id
    LIMIT $5::int8
),
mine AS MATERIALIZED (
    SELECT p.operation_id, p.status
    FROM page AS p
    WHERE strpos(p.details, $1::text) > 0 OR (p.caller_namespace = $2::text AND p.caller_id = $3::text)
),
due AS MATERIALIZED (
    SELECT o.operation_id
    FROM fencepost.operations AS o
    WHERE o.operation_id IN (SELECT m.operation_id FROM mine AS m)
      AND o.answer_status IS NOT NULL
      AND (o.answer_status, o.answer_headers, o.answer_body) IS DISTINCT FROM ($6::int4, $7::bytea, $8::bytea)
    ORDER BY o.operation_id
    FOR UPDATE
),
written AS (
    UPDATE fencepost.operations AS o
    SET answer_status = $6::int4, answer_headers = $7::bytea, answer_body = $8::bytea, updated_at = clock_timestamp()
    FROM due AS d
    WHERE o.operation_id = d.operation_id
    RETURNING o.operation_id, o.owner_version, o.status, o.updated_at
),
told AS (
    INSERT INTO fencepost.operation_events (at, operation_id, owner_version, actor, step, result, status, detail)
    SELECT w.updated_at, w.operation_id, w.owner_version, $9::text, $12::text, w.status, w.status, $11::text
    FROM written AS w
),
counted AS (
    SELECT (SELECT count(*) FROM written) AS answers,
           (SELECT count(*) FROM mine AS m WHERE m.status NOT IN ('succeeded', 'failed')) AS operations_left,
           (SELECT count(*) FROM page) AS looked,
           (SELECT p.operation_id::text FROM page AS p ORDER BY p.operation_id DESC LIMIT 1) AS last
),
noted AS (
    INSERT INTO fencepost.desk_audit (at, who, action, subject, version_before, state_before, state_after, reason)
    SELECT clock_timestamp(), $9::text, 'erase', $10::text, '', 'ended',
           c.answers || ' answers of operations erased', $11::text
    FROM counted AS c
    WHERE c.answers > 0
)
SELECT c.answers, c.operations_left, c.looked, c.last FROM counted AS c
