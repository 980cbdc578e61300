-- grant_revoke_row: withdraws a grant that is a row, if it was not used.
--
-- Invariants: contends with admissions for the row's lock; whoever commits first wins.
-- Isolation: READ COMMITTED, one statement in autocommit. Locks: the row of issued_grants.
-- Outcomes: one row; `revoked`: now. Not: it was used, revoked before, or is not there, and
-- grant_report says which. The audit row says both.
--
-- $1 issuer $2 key_tenant $3 grant_id $4 actor $5 reason
WITH revoked AS (
    UPDATE fencepost.issued_grants AS g
    SET revoked_at = statement_timestamp()
    WHERE g.issuer = $1::text AND g.key_tenant = $2::text AND g.grant_id = $3::text
      AND g.form = 'row'
      AND g.consumed_at IS NULL
      AND g.revoked_at IS NULL
    RETURNING g.grant_id
),
audited AS (
    INSERT INTO fencepost.grant_audit (at, actor, action, outcome, issuer, key_tenant, grant_id, reason)
    SELECT clock_timestamp(), $4::text, 'revoke',
           CASE WHEN EXISTS (SELECT FROM revoked) THEN 'revoked' ELSE 'nothing_changed' END,
           $1::text, $2::text, $3::text, $5::text
)
SELECT EXISTS (SELECT FROM revoked) AS revoked
