-- pin_add: pins it, once. In the write lock, after pin_read found none.
INSERT INTO grant_policies (issuer, leeway_version, form, key_by_tenant, leeway_ms, lifetime_ms_max, iat_skew_ms,
                            pinned_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
