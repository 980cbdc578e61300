-- Gives the database its identity, once.
INSERT INTO meta (one, store_id) VALUES (1, ?1) ON CONFLICT (one) DO NOTHING
