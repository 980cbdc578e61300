-- seal_entry_read: the answer of one entry as it is stored, and what its seal is bound to.
--
-- Isolation: any. Locks: none. Outcomes: one row, or none where there is no answer.
SELECT e.status, e.headers, e.body, e.scheme, e.fingerprint, e.fence AS version, e.updated_at
FROM fencepost.entries AS e
WHERE e.key = $1::text AND e.state = 'completed'
