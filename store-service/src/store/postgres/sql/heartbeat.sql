-- heartbeat: is the server there, does it take writes, and is it still the same database?
--
-- Isolation: any. Locks: none.
-- Outcomes: one row.
SELECT m.store_id, current_setting('transaction_read_only') = 'off' AS writable
FROM fencepost.meta AS m
WHERE m.one
