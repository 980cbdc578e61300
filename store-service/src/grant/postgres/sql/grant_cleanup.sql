-- grant_cleanup: records of use go, once no admission can succeed without them.
--
-- Purpose: a missing record admits. So a row stays until its deadline and a margin have passed that
-- is longer than any admission statement that began before the deadline can live. Run only where
-- that bound was seen to hold.
-- As a second barrier, for an instance that is not bounded as it should be: a transaction that is
-- open since before a row's deadline keeps that row, whoever has it, as far as this role may see it
-- (its own sessions, or all with pg_read_all_stats).
-- Invariants: touches no operation and no issued grant.
-- Isolation: READ COMMITTED, one statement; rows that changed are checked again when locked.
-- Locks: at most $2 rows; rows that somebody has are left for the next round.
-- Outcomes: how many rows went.
--
-- $1 margin (ms) $2 limit
WITH oldest AS MATERIALIZED (
    SELECT min(a.xact_start) AS at
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
),
due AS MATERIALIZED (
    SELECT c.issuer, c.key_tenant, c.grant_id
    FROM fencepost.grant_consumptions AS c
    WHERE c.retain_until < statement_timestamp() - $1::int8 * interval '1 millisecond'
      AND c.retain_until < coalesce((SELECT o.at FROM oldest AS o), 'infinity')
    ORDER BY c.retain_until
    LIMIT $2::int8
    FOR UPDATE SKIP LOCKED
),
dropped AS (
    DELETE FROM fencepost.grant_consumptions AS c USING due AS d
    WHERE c.issuer = d.issuer AND c.key_tenant = d.key_tenant AND c.grant_id = d.grant_id
    RETURNING c.grant_id
)
SELECT count(*) AS changed FROM dropped
