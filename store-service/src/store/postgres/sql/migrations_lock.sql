-- migrations_lock: of instances that start together one migrates; the others wait, and find the
-- work done. The lock belongs to the transaction, so it also works through a pooler.
--
-- Isolation: READ COMMITTED, so that what the others did is seen after the wait.
-- Locks: advisory lock 7309940286158, until the end of the transaction.
SELECT pg_advisory_xact_lock(7309940286158)
