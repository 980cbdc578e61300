-- operation_history: what was done about one operation, oldest first; its last thousand lines.
--
-- ?1 operation id
SELECT at, owner_version, actor, step, result, status, detail
FROM (SELECT * FROM operation_events WHERE operation_id = ?1 ORDER BY id DESC LIMIT 1000)
ORDER BY id
