-- grant_admit: claims the single use of a grant that is a token, and records the operation.
--
-- Purpose: the one write that admits. The key of grant_consumptions decides: every competing
-- statement finds the conflict and claims nothing; a revocation contends for the same key.
-- Invariants: no claim without its operation, no operation without its claim. The deadline is
-- expiry plus leeway, compared with the start of this statement on the database's clock, so a wait
-- neither opens nor closes it. Lease and submit_by run from the writing of the row, so a wait does
-- not eat them.
-- Isolation: READ COMMITTED, one statement in autocommit: never inside a longer transaction, or the
-- bound on its life would not hold (see grant_cleanup).
-- Locks: the key of the consumption, then the operation's id and grant key. Only statements for the
-- same grant or operation wait for each other.
-- Outcomes: one row. owner_version set: admitted. Not set: this attempt admitted nothing, and `late`
-- says whether its deadline had passed, `held` whether a hold stands over it. A unique violation of operations_pkey or
-- operations_grant_key undoes the claim as well: refused. Any other violation is a defect.
--
-- $1 issuer $2 key_tenant $3 grant_id $4 operation id $5 expires_at $6 leeway (ms) $7 caller
-- namespace $8 caller $9 tenant $10 details digest $11 details $12 lease (ms) $13 submission
-- window (ms) $14 first owner version $15 earliest time of issue $16 subject of the audit about it
WITH asked AS (
    SELECT $5::timestamptz + $6::int8 * interval '1 millisecond' AS deadline,
           -- After a restored backup: what was issued before may have been used since, and a person
           -- has not said that it was not.
           EXISTS (
               SELECT FROM fencepost.holds AS h
               WHERE h.lifted_at IS NULL AND h.grants AND h.since >= $15::timestamptz
                 AND NOT EXISTS (SELECT FROM fencepost.desk_audit AS l
                                 WHERE l.subject = $16::text AND l.action = 'release_grant'
                                   AND l.at >= h.began_at)
           ) AS held
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
           $11::text, 'admitted', NULL, $14::int4, n.now + $12::int8 * interval '1 millisecond',
           n.now + $13::int8 * interval '1 millisecond', n.now, n.now
    FROM claim AS c CROSS JOIN LATERAL (SELECT clock_timestamp() AS now, c.grant_id OFFSET 0) AS n
    RETURNING o.owner_version, o.lease_until, o.submit_by
)
SELECT a.deadline <= statement_timestamp() AS late, a.held, o.owner_version,
       (extract(epoch FROM o.lease_until - clock_timestamp()) * 1000)::int8 AS lease_left_ms,
       (extract(epoch FROM o.submit_by - clock_timestamp()) * 1000)::int8 AS submit_left_ms
FROM asked AS a LEFT JOIN operation AS o ON true
