-- seal_key_drop: no answer is sealed with this key any more.
--
-- Isolation: read committed. Locks: the row of the id. Outcomes: none. An instance that still seals
-- with it adds it again within half a minute.
DELETE FROM fencepost.seal_keys AS k WHERE k.id = $1::text
