-- seal_operation_write: the same answer of an operation in another form.
--
-- Isolation: read committed. Locks: the operation's row. Applies only to the answer that was read, and
-- leaves updated_at, as seal_entry_write does. Outcomes: one row if it applied, else none.
UPDATE fencepost.operations AS o
SET answer_headers = $5::bytea, answer_body = $6::bytea
WHERE o.operation_id = $1::text::uuid AND o.answer_status IS NOT NULL
  AND o.owner_version = $2::int8 AND o.updated_at = $3::timestamptz AND o.answer_headers = $4::bytea
RETURNING true AS wrote
