-- One line of the audit, in the transaction of what it tells.
INSERT INTO entry_audit (at, who, action, key, version_fence, version_updated_at, state_before, state_after,
                         forced, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
