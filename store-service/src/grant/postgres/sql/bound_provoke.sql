-- bound_provoke: a statement that stays longer than the bound allows, to see the server cut it.
--
-- Isolation: any. Locks: none. Outcomes: SQLSTATE 25P04 and the end of the connection; an answer
-- means that there is no bound.
--
-- $1 seconds
SELECT pg_sleep($1::float8)::text AS slept
