-- recovery_count: one more attempt that settled nothing. ?1 operation id
UPDATE operations SET recovery_attempts = recovery_attempts + 1 WHERE operation_id = ?1
