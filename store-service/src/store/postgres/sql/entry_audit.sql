-- entry_audit: what people did to one entry, oldest first; its last thousand lines.
--
-- Isolation: any. Locks: none.
--
-- $1 key
SELECT l.at, l.who, l.action, l.version_fence, l.version_updated_at, l.state_before, l.state_after, l.forced,
       l.reason
FROM (
    SELECT a.id, a.at, a.who, a.action, a.version_fence, a.version_updated_at, a.state_before, a.state_after,
           a.forced, a.reason
    FROM fencepost.entry_audit AS a
    WHERE a.key = $1::text
    ORDER BY a.id DESC
    LIMIT 1000
) AS l
ORDER BY l.id
