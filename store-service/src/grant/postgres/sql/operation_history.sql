-- operation_history: what was done about one operation, oldest first; its last thousand lines.
--
-- Isolation: any. Locks: none.
--
-- $1 operation id
SELECT l.at, l.owner_version, l.actor, l.step, l.result, l.status, l.detail
FROM (
    SELECT e.id, e.at, e.owner_version, e.actor, e.step, e.result, e.status, e.detail
    FROM fencepost.operation_events AS e
    WHERE e.operation_id = $1::text::uuid
    ORDER BY e.id DESC
    LIMIT 1000
) AS l
ORDER BY l.id
