-- migrations_create: the schema, and the append-only list of its versions. Under migrations_lock.
CREATE SCHEMA IF NOT EXISTS fencepost;
CREATE TABLE IF NOT EXISTS fencepost.migrations (
    version    bigint      NOT NULL PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)
