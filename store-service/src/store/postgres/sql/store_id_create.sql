-- store_id_create: gives the database its identity, once. Under migrations_lock. $1 random bytes
INSERT INTO fencepost.meta (store_id) VALUES ($1::bytea) ON CONFLICT (one) DO NOTHING
