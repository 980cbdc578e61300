-- seal_operation_page: the next operations in the order of their ids, and how each begins that has an
-- answer.
SELECT o.operation_id AS name, substr(o.answer_headers, 1, 18) AS head FROM operations AS o
WHERE o.operation_id > ?1 ORDER BY o.operation_id LIMIT ?2
