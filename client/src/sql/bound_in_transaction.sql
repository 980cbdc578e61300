-- bound_in_transaction: bounds what is left of the caller's transaction, and says its isolation.
--
-- A smaller bound that is set already stays. Fails before PostgreSQL 17, which has no such setting.
-- Isolation: any. Locks: none. Outcomes: one row.
--
-- $1 bound (ms)
SELECT set_config('transaction_timeout',
                  CASE WHEN s.setting::int8 BETWEEN 1 AND $1::int8 THEN s.setting ELSE $1::int8::text END, true),
       current_setting('transaction_isolation') AS isolation
FROM pg_settings AS s
WHERE s.name = 'transaction_timeout'
