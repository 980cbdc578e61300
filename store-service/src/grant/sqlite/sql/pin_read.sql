-- pin_read: what grants of an issuer and leeway version are issued under. Outcomes: one row, or none.
--
-- ?1 issuer ?2 leeway version
SELECT p.form, p.key_by_tenant, p.leeway_ms, p.lifetime_ms_max, p.iat_skew_ms FROM grant_policies AS p
WHERE p.issuer = ?1 AND p.leeway_version = ?2
