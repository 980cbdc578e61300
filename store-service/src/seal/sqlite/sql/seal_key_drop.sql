-- seal_key_drop: no answer is sealed with this key any more.
DELETE FROM seal_keys WHERE id = ?1
