-- desk_note: writes down what a person did that changed nothing else.
--
-- Isolation: READ COMMITTED, one statement. Locks: none. Outcomes: one row.
--
-- $1 who $2 action $3 subject $4 version $5 state $6 reason
INSERT INTO fencepost.desk_audit (at, who, action, subject, version_before, state_before, state_after, reason)
VALUES (clock_timestamp(), $1::text, $2::text, $3::text, $4::text, $5::text, $5::text, $6::text)
RETURNING id
