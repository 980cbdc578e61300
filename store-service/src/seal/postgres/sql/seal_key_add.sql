-- seal_key_add: an instance seals with this key from now on.
--
-- Isolation: read committed. Locks: the row of the id, which several instances may add at once.
-- Outcomes: none; an id that is there stays, and nothing is written.
INSERT INTO fencepost.seal_keys AS k (id, added_at)
VALUES ($1::text, clock_timestamp())
ON CONFLICT (id) DO NOTHING
