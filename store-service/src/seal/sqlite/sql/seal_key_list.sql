-- seal_key_list: ids of the keys that answers may be sealed with.
SELECT k.id FROM seal_keys AS k ORDER BY k.id
