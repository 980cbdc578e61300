-- operation_erase: replaces the answer of an operation by the marker, unless it stands there already.
--
-- ?1 operation id ?2 status, ?3 headers and ?4 body of the marker ?5 now
UPDATE operations SET answer_status = ?2, answer_headers = ?3, answer_body = ?4, updated_at = ?5
WHERE operation_id = ?1 AND answer_status IS NOT NULL
  AND (answer_status, answer_headers, answer_body) IS NOT (?2, ?3, ?4)
