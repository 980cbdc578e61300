-- seal_entry_write: the same answer of an entry in another form.
--
-- Isolation: read committed. Locks: the entry's row; a statement that waited for it looks again at all
-- conditions. Applies only to the answer that was read: version and header block ($2, $3, $4) are
-- those. updated_at stays, for nothing has changed that anybody could see, and so an order about the
-- version that was shown still applies. Outcomes: one row if it applied, else none.
UPDATE fencepost.entries AS e
SET headers = $5::bytea, body = $6::bytea
WHERE e.key = $1::text AND e.state = 'completed'
  AND e.fence = $2::int8 AND e.updated_at = $3::timestamptz AND e.headers = $4::bytea
RETURNING true AS wrote
