-- audit_add: a privileged write, appended.
INSERT INTO grant_audit (at, actor, action, outcome, issuer, key_tenant, grant_id, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
