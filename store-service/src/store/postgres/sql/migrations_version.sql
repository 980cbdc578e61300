-- migrations_version: the newest schema version; 0 when there is none. Isolation: any. Locks: none.
SELECT coalesce(max(m.version), 0) AS version FROM fencepost.migrations AS m
