-- operation_answer: the answer that was stored with an operation's final outcome. Who may see it is
-- decided by the caller, before.
--
-- Isolation: READ COMMITTED. An answer stays, or is erased for ever, so reading it after the status is one
-- view.
-- Locks: none. Outcomes: one row, or none where no answer was stored.
--
-- $1 operation id
SELECT o.answer_status, o.answer_headers, o.answer_body
FROM fencepost.operations AS o
WHERE o.operation_id = $1::text::uuid AND o.answer_status IS NOT NULL
