-- The identity of this database.
SELECT store_id FROM meta WHERE one = 1
