-- desk_note: appends a line to the audit.
--
-- ?1 at ?2 who ?3 action ?4 subject ?5 version ?6 state before ?7 state after ?8 reason
INSERT INTO desk_audit (at, who, action, subject, version_before, state_before, state_after, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
