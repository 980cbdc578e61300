-- seal_key_add: the service seals with this key from now on; an id that is there stays.
INSERT INTO seal_keys (id, added_at) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING
