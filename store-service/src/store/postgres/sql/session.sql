-- session: what a connection of our own starts with. Not sent through a transaction-mode pooler,
-- where nothing may be left behind on a server connection.
--
-- The isolation level is pinned, whatever the role or the database have as default: the statements
-- are written for READ COMMITTED. The rest keeps a plan that was made for a small table from
-- reading a large one: every statement here goes by an index. (A pooled connection plans each
-- statement anew and needs no such help.) Statements this short are never worth compiling, so jit is
-- off: a plan whose cost is estimated wrongly must not cost seconds.
SET default_transaction_isolation = 'read committed';
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off
