-- hold_lift: ends a hold that stands. ?1 id ?2 now
UPDATE holds SET lifted_at = ?2 WHERE id = ?1 AND lifted_at IS NULL
