-- entry_erase: replaces an answer by the marker, unless it stands there already.
--
-- ?1 key ?2 status, ?3 headers and ?4 body of the marker ?5 now
UPDATE entries SET status = ?2, headers = ?3, body = ?4, updated_at = ?5
WHERE key = ?1 AND state = 'completed' AND (status, headers, body) IS NOT (?2, ?3, ?4)
