-- instance_leave: this instance stops in order, so nobody has to wait for it.
--
-- Isolation: any. Locks: its own row.
--
-- $1 instance
DELETE FROM fencepost.instances WHERE instance = $1::text
