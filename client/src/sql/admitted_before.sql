-- admitted_before: was the grant spent, and for this very operation? Reports only. A revocation
-- counts as spent.
--
-- Isolation: READ COMMITTED. Locks: none. Outcomes: one row.
--
-- $1 issuer $2 key_tenant $3 grant_id $4 operation id $5 caller namespace $6 caller $7 tenant
-- $8 details digest
SELECT EXISTS (
    SELECT FROM fencepost.grant_consumptions AS c
    JOIN fencepost.operations AS o ON o.operation_id = c.operation_id
    WHERE c.issuer = $1::text AND c.key_tenant = $2::text AND c.grant_id = $3::text
      AND o.operation_id = $4::text::uuid AND o.caller_namespace = $5::text AND o.caller_id = $6::text
      AND o.tenant = $7::text AND o.details_digest = $8::bytea
) AS before,
EXISTS (
    SELECT FROM fencepost.grant_consumptions AS c
    WHERE c.issuer = $1::text AND c.key_tenant = $2::text AND c.grant_id = $3::text
) AS spent
