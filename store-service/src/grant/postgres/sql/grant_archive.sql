-- grant_archive: rows that were grants lose what they bound, long after they could be admitted.
--
-- Purpose: forgets subjects, tenants and details, and keeps a tombstone. Nothing is deleted: the key
-- stays, so its id can't be issued again, and grant_admit_row claims no archived row, even for a
-- statement that began before the deadline and waits for this one.
-- Invariants: only rows whose deadline and margin have passed, used or not. As in grant_cleanup, a
-- transaction that is open since before a row's deadline keeps that row. Touches no operation.
-- Isolation: READ COMMITTED, one statement; rows that changed are checked again when locked.
-- Locks: at most $2 rows; rows that somebody has are left for the next round.
-- Outcomes: how many rows; one line of grant_archivals for each issuer among them.
--
-- $1 margin after the deadline (ms) $2 limit
WITH oldest AS MATERIALIZED (
    SELECT min(a.xact_start) AS at
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
),
due AS MATERIALIZED (
    SELECT g.issuer, g.key_tenant, g.grant_id
    FROM fencepost.issued_grants AS g
    WHERE g.form = 'row'
      AND g.archived_at IS NULL
      -- Goes by the index; the leeway only makes it later.
      AND g.expires_at < statement_timestamp() - $1::int8 * interval '1 millisecond'
      AND g.expires_at + g.leeway_ms * interval '1 millisecond'
          < statement_timestamp() - $1::int8 * interval '1 millisecond'
      AND g.expires_at + g.leeway_ms * interval '1 millisecond'
          < coalesce((SELECT o.at FROM oldest AS o), 'infinity')
    ORDER BY g.expires_at
    LIMIT $2::int8
    FOR UPDATE SKIP LOCKED
),
archived AS (
    UPDATE fencepost.issued_grants AS g
    SET archived_at = statement_timestamp(), tenant = '', subject = '', bound = '{}'
    FROM due AS d
    WHERE g.issuer = d.issuer AND g.key_tenant = d.key_tenant AND g.grant_id = d.grant_id
    RETURNING g.issuer, g.consumed_at, g.expires_at
),
audited AS (
    INSERT INTO fencepost.grant_archivals (at, issuer, archived, used, last_expired)
    SELECT clock_timestamp(), a.issuer, count(*), count(a.consumed_at), max(a.expires_at)
    FROM archived AS a
    GROUP BY a.issuer
)
SELECT count(*) AS changed FROM archived
