-- seal_operation_read: the answer of one operation as it is stored.
SELECT o.answer_status AS status, o.answer_headers AS headers, o.answer_body AS body,
       o.owner_version AS version, o.updated_at
FROM operations AS o
WHERE o.operation_id = ?1 AND o.answer_status IS NOT NULL
