-- store_id: the identity of this database. Isolation: any. Locks: none.
SELECT m.store_id FROM fencepost.meta AS m
