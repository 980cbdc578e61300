-- issued_add: records that a grant was issued. In the write lock, after issued_read found none.
INSERT INTO issued_grants (issuer, key_tenant, grant_id, form, tenant, subject, bound, issued_at, expires_at,
                           leeway_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
