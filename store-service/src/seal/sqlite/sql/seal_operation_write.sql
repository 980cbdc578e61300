-- seal_operation_write: the same answer of an operation in another form, if it is still the one that
-- was read. updated_at stays.
UPDATE operations SET answer_headers = ?5, answer_body = ?6
WHERE operation_id = ?1 AND answer_status IS NOT NULL AND owner_version = ?2 AND updated_at = ?3
  AND answer_headers = ?4
