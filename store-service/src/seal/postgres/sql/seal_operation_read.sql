-- seal_operation_read: the answer of one operation as it is stored.
--
-- Isolation: any. Locks: none. Outcomes: one row, or none where there is no answer.
SELECT o.answer_status::int2 AS status, o.answer_headers AS headers, o.answer_body AS body,
       o.owner_version::int8 AS version, o.updated_at
FROM fencepost.operations AS o
WHERE o.operation_id = $1::text::uuid AND o.answer_status IS NOT NULL
