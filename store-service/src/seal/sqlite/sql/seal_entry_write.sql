-- seal_entry_write: the same answer of an entry in another form, if it is still the one that was read.
-- updated_at stays: nothing has changed that anybody could see.
UPDATE entries SET headers = ?5, body = ?6
WHERE key = ?1 AND state = 'completed' AND fence = ?2 AND updated_at = ?3 AND headers = ?4
