-- backend_pid: which server process answers. Two connections that are served by one process, or a
-- connection that is served by two, show a transaction-mode pooler.
--
-- Isolation: any. Locks: none.
SELECT pg_backend_pid() AS pid
