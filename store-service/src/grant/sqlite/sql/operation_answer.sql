-- operation_answer: the answer that was stored with a final outcome. Outcomes: one row, or none.
--
-- ?1 operation id
SELECT o.answer_status, o.answer_headers, o.answer_body FROM operations AS o
WHERE o.operation_id = ?1 AND o.answer_status IS NOT NULL
