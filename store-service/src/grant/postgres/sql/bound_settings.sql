-- bound_settings: what the server says about the life of a transaction on this connection.
--
-- transaction_timeout is there from PostgreSQL 17; it also covers the transaction of a single
-- statement. Its value comes in milliseconds.
-- Isolation: any. Locks: none. Outcomes: one row.
SELECT current_setting('server_version_num')::int4 AS version_num,
       (SELECT s.setting::int8 FROM pg_settings AS s WHERE s.name = 'transaction_timeout') AS timeout_ms,
       current_setting('synchronous_standby_names') <> ''
           AND current_setting('synchronous_commit') NOT IN ('off', 'local') AS replicated
