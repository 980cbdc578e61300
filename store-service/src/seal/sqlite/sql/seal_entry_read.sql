-- seal_entry_read: the answer of one entry as it is stored, and what its seal is bound to.
SELECT e.status, e.headers, e.body, e.scheme, e.fingerprint, e.fence AS version, e.updated_at
FROM entries AS e
WHERE e.key = ?1 AND e.state = 'completed'
