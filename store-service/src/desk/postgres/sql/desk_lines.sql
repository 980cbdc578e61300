-- desk_lines: what people did to one subject, oldest first; its last thousand lines.
--
-- Isolation: any. Locks: none.
--
-- $1 subject
SELECT l.at, l.who, l.action, l.version_before, l.state_before, l.state_after, l.reason
FROM (
    SELECT a.id, a.at, a.who, a.action, a.version_before, a.state_before, a.state_after, a.reason
    FROM fencepost.desk_audit AS a
    WHERE a.subject = $1::text
    ORDER BY a.id DESC
    LIMIT 1000
) AS l
ORDER BY l.id
