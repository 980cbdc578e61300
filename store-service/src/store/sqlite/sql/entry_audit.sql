-- What people did to one entry, oldest first; its last thousand lines. ?1 key.
SELECT at, who, action, version_fence, version_updated_at, state_before, state_after, forced, reason
FROM (SELECT * FROM entry_audit WHERE key = ?1 ORDER BY id DESC LIMIT 1000)
ORDER BY id
