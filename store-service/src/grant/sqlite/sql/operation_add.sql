-- operation_add: records an operation. In the write lock, with the claim of its grant.
INSERT INTO operations (operation_id, issuer, key_tenant, grant_id, caller_namespace, caller_id, tenant,
                        details_digest, details, status, reference, owner_version, lease_until, submit_by,
                        created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'admitted', NULL, ?10, ?11, ?12, ?13, ?13)
