-- Keys of claims whose lease has ended, oldest first: candidates, decided one by one afterwards.
-- ?1 now, ?2 on_lost, ?3 how long the instance has been calm (ms), ?4 limit.
SELECT key
FROM entries
WHERE state = 'claimed'
  AND lease_until <= ?1
  AND on_lost = ?2
  AND claim_ttl_ms <= ?3
  AND (on_lost = 'hold' OR run_until + unknown_ttl_ms * 1000 <= ?1)
ORDER BY lease_until
LIMIT ?4
