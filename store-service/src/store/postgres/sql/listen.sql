-- listen: from here on this connection hears notices.
--
-- Isolation: outside of a transaction. Only on a connection that is ours alone: behind a
-- transaction-mode pooler it would stay on a server connection that others use.
LISTEN fencepost_freed
