-- grant_issue: records that a grant was issued, with its audit row.
--
-- Invariants: an id is never used again; an expiry must lie ahead, and no further than a grant may
-- live, by the database's clock.
-- Isolation: READ COMMITTED, one statement. Locks: the grant's key.
-- Outcomes: one row. `issued`: now. Not: `good_expiry` says whether the expiry was the reason; if it
-- was not, the id exists, and grant_issued says with which contents.
--
-- $1 issuer $2 key_tenant $3 grant_id $4 form $5 tenant $6 subject $7 bound $8 expires_at (null:
-- not known) $9 leeway (ms) $10 longest lifetime (ms) $11 actor
WITH asked AS (
    SELECT $8::timestamptz IS NULL
           OR ($8::timestamptz > statement_timestamp()
               AND $8::timestamptz <= statement_timestamp() + $10::int8 * interval '1 millisecond') AS good_expiry
),
issued AS (
    INSERT INTO fencepost.issued_grants AS g
        (issuer, key_tenant, grant_id, form, tenant, subject, bound, issued_at, expires_at, leeway_ms)
    SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, statement_timestamp(),
           $8::timestamptz, $9::int8
    FROM asked AS a
    WHERE a.good_expiry
    ON CONFLICT (issuer, key_tenant, grant_id) DO NOTHING
    RETURNING g.issuer, g.key_tenant, g.grant_id
),
audited AS (
    INSERT INTO fencepost.grant_audit (at, actor, action, outcome, issuer, key_tenant, grant_id, reason)
    SELECT clock_timestamp(), $11::text, 'issue', 'issued', i.issuer, i.key_tenant, i.grant_id, ''
    FROM issued AS i
)
SELECT a.good_expiry, EXISTS (SELECT FROM issued) AS issued FROM asked AS a
