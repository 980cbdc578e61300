-- server_check: may this server decide, and what could its failure take with it? Asked on every new
-- connection.
--
-- standbys counts every receiver of the log that this role can see: without the rights of
-- pg_read_all_stats it sees that they are there, and that is enough. The timeline grows when a standby
-- is promoted; a server in recovery has none to write to.
--
-- Isolation: any. Locks: none.
-- Outcomes: one row of settings; the caller explains what is wrong with them.
SELECT current_setting('server_version_num')::int4 AS version_num,
       current_setting('server_version') AS version,
       pg_is_in_recovery() AS in_recovery,
       current_setting('default_transaction_read_only') = 'on' AS read_only,
       current_setting('transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS standby_names,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       current_setting('fsync') AS fsync,
       CASE WHEN pg_is_in_recovery() THEN NULL
            ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline
