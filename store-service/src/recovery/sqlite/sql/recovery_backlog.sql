-- recovery_backlog: how much waits, each number counted up to a bound. ?1 now ?2 highest number
SELECT (SELECT count(*) FROM (SELECT 1 FROM operations
                              WHERE status IN ('admitted', 'unknown') AND lease_until < ?1 LIMIT ?2)),
       (SELECT count(*) FROM (SELECT 1 FROM operations WHERE status = 'needs_reconciliation' LIMIT ?2)),
       (SELECT count(*) FROM (SELECT 1 FROM held_keys WHERE for_person IS NOT NULL LIMIT ?2))
