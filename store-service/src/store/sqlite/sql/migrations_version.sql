-- The newest schema version; 0 when there is none.
SELECT coalesce(max(version), 0) FROM migrations
