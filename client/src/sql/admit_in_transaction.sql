-- admit_in_transaction: claims a grant that is a token, in the caller's own transaction.
--
-- Purpose: where the effect is a write to the same database, use and effect commit or roll back
-- together; so the operation is recorded as succeeded at once, and nothing is left to recover.
-- Invariants: as grant_admit of the service. The leeway is the one that is pinned for the issuer, so
-- no second configuration can drift away from it. A missing policy admits nothing.
-- Isolation: READ COMMITTED, which the caller of this statement checks; statement_timestamp() is the
-- start of this statement, however long the transaction has been open. The transaction's life from
-- here on is bounded (bound_in_transaction), or the cleanup of records could overtake it.
-- Locks: the key of the consumption, then the operation's id and grant key, to the caller's commit.
-- Outcomes: one row. admitted: claimed by this statement. Else: late says whether the deadline had
-- passed, held whether a hold stands over the grant, known whether the issuer has a policy. Unique violations of operations_pkey and
-- operations_grant_key: refused.
--
-- $1 issuer $2 key_tenant $3 grant_id $4 operation id $5 expires_at $6 leeway version $7 caller
-- namespace $8 caller $9 tenant $10 details digest $11 details $12 issued_at $13 subject of the
-- audit about the grant
WITH asked AS (
    SELECT $5::timestamptz + p.leeway_ms * interval '1 millisecond' AS deadline,
           -- As grant_admit: issued before a backup was restored, and perhaps used since. The
           -- issuer's clock may have been ahead by the pinned skew.
           EXISTS (
               SELECT FROM fencepost.holds AS h
               WHERE h.lifted_at IS NULL AND h.grants
                 AND h.since >= $12::timestamptz - p.iat_skew_ms * interval '1 millisecond'
                 AND NOT EXISTS (SELECT FROM fencepost.desk_audit AS l
                                 WHERE l.subject = $13::text AND l.action = 'release_grant'
                                   AND l.at >= h.began_at)
           ) AS held
    FROM fencepost.grant_policies AS p
    WHERE p.issuer = $1::text AND p.leeway_version = $6::text AND p.form = 'token'
),
claim AS (
    INSERT INTO fencepost.grant_consumptions AS c
        (issuer, key_tenant, grant_id, operation_id, consumed_at, retain_until)
    SELECT $1::text, $2::text, $3::text, $4::text::uuid, statement_timestamp(), a.deadline
    FROM asked AS a
    WHERE a.deadline > statement_timestamp() AND NOT a.held
    ON CONFLICT (issuer, key_tenant, grant_id) DO NOTHING
    RETURNING c.issuer, c.key_tenant, c.grant_id
),
operation AS (
    INSERT INTO fencepost.operations AS o
        (operation_id, issuer, key_tenant, grant_id, caller_namespace, caller_id, tenant, details_digest, details,
         status, reference, owner_version, lease_until, submit_by, created_at, updated_at)
    SELECT $4::text::uuid, c.issuer, c.key_tenant, c.grant_id, $7::text, $8::text, $9::text, $10::bytea,
           $11::text, 'succeeded', NULL, 1, clock_timestamp(), clock_timestamp(), clock_timestamp(),
           clock_timestamp()
    FROM claim AS c
    RETURNING o.operation_id
)
SELECT EXISTS (SELECT FROM operation) AS admitted,
       EXISTS (SELECT FROM asked) AS known,
       coalesce((SELECT a.deadline <= statement_timestamp() FROM asked AS a), false) AS late,
       coalesce((SELECT a.held FROM asked AS a), false) AS held
