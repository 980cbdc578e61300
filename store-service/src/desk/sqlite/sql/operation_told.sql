-- operation_told: appends to the history of an operation.
--
-- ?1 at ?2 operation id ?3 owner version ?4 actor ?5 step ?6 status before ?7 status after ?8 reason
INSERT INTO operation_events (at, operation_id, owner_version, actor, step, result, status, detail)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
