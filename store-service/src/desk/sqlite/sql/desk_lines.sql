-- desk_lines: what people did to one subject, oldest first; its last thousand lines.
--
-- ?1 subject
SELECT l.at, l.who, l.action, l.version_before, l.state_before, l.state_after, l.reason
FROM (SELECT a.* FROM desk_audit AS a WHERE a.subject = ?1 ORDER BY a.id DESC LIMIT 1000) AS l
ORDER BY l.id
