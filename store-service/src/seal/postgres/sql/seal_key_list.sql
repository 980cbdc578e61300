-- seal_key_list: ids of the keys that answers may be sealed with.
--
-- Isolation: any. Locks: none. Outcomes: a row for each; a few.
SELECT k.id FROM fencepost.seal_keys AS k ORDER BY k.id
