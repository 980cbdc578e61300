-- migrations_exists: is there a list of schema versions? Isolation: any. Locks: none.
SELECT to_regclass('fencepost.migrations') IS NOT NULL AS found
