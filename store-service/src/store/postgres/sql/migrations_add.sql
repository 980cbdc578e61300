-- migrations_add: records a schema version. Under migrations_lock. $1 version
INSERT INTO fencepost.migrations (version) VALUES ($1::int8)
