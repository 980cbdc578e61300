-- Eighth version: every audit can be read by time.
CREATE INDEX entry_audit_at ON entry_audit (at, id);
CREATE INDEX operation_events_at ON operation_events (at, id);
CREATE INDEX grant_audit_at ON grant_audit (at, id);
CREATE INDEX grant_archivals_at ON grant_archivals (at, id);
CREATE INDEX desk_audit_at ON desk_audit (at, id);
