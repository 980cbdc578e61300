-- hold_list: holds, the newest first. ?1 only this one (null: any)
SELECT h.id, h.prefix, h.since, h.keys_until, h.grants, h.began_at, h.began_by, h.reason, h.lifted_at
FROM holds AS h WHERE ?1 IS NULL OR h.id = ?1 ORDER BY h.id DESC LIMIT 1000
