-- session: what a connection of our own starts with. Not sent through a transaction-mode pooler,
-- where nothing may be left behind on a server connection.
--
-- The isolation level is pinned, whatever the role or the database have as default: the statements
-- are written for READ COMMITTED. A statement that the server itself ends while it waits for a
-- synchronous standby is confirmed all the same, with a warning, although the standby does not have
-- it: so the server's timeout is off, and the service bounds its statements itself, believing
-- nothing that comes after. The rest keeps a plan that was made for a small table from
-- reading a large one: every statement here goes by an index. (A pooled connection plans each
-- statement anew and needs no such help.) Statements this short are never worth compiling, so jit is
-- off: a plan whose cost is estimated wrongly must not cost seconds.
SET default_transaction_isolation = 'read committed';
SET statement_timeout = 0;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off
