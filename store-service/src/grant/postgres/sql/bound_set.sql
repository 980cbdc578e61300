-- bound_set: bounds every transaction of this connection, which only runs admissions.
--
-- A smaller bound of the role stays. Not sent through a transaction-mode pooler, where it would stay
-- behind on a server connection.
-- Isolation: any. Locks: none. Outcomes: one row.
--
-- $1 bound (ms)
SELECT set_config('transaction_timeout',
                  CASE WHEN s.setting::int8 BETWEEN 1 AND $1::int8 THEN s.setting ELSE $1::int8::text END, false)
FROM pg_settings AS s
WHERE s.name = 'transaction_timeout'
