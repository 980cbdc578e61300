-- hold_list: holds, the newest first.
--
-- Isolation: any. Locks: none. Outcomes: at most a thousand rows.
SELECT h.id, h.prefix, h.since, h.keys_until, h.grants, h.began_at, h.began_by, h.reason, h.lifted_at,
       clock_timestamp() AS now
FROM fencepost.holds AS h
ORDER BY h.id DESC
LIMIT 1000
