-- event_add: one line of an operation's history, in the transaction of what it tells.
INSERT INTO operation_events (at, operation_id, owner_version, actor, step, result, status, detail)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
