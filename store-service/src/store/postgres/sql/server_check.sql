-- server_check: may this server decide? Asked on every new connection.
--
-- Isolation: any. Locks: none.
-- Outcomes: one row of settings; the caller explains what is wrong with them.
SELECT current_setting('server_version_num')::int4 AS version_num,
       current_setting('server_version') AS version,
       pg_is_in_recovery() AS in_recovery,
       current_setting('default_transaction_read_only') = 'on' AS read_only,
       current_setting('transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS synchronous_commit
