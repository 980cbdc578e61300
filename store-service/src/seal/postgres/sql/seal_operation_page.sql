-- seal_operation_page: the next operations in the order of their ids, and how each begins that has an
-- answer.
--
-- Isolation: any. Locks: none. Bounded by $2 rows, with or without an answer; answers are not read. No
-- operation has the lowest id of all, at which the first page begins.
SELECT o.operation_id::text AS name, substr(o.answer_headers, 1, 18) AS head
FROM fencepost.operations AS o
WHERE o.operation_id > coalesce(nullif($1::text, ''), '00000000-0000-0000-0000-000000000000')::uuid
ORDER BY o.operation_id
LIMIT $2::int8
