-- operation_answer_add: stores the answer of a run. In the write lock, with its final outcome, after
-- the row was looked at.
--
-- ?1 operation id ?2 status ?3 header block ?4 body
UPDATE operations SET answer_status = ?2, answer_headers = ?3, answer_body = ?4 WHERE operation_id = ?1
