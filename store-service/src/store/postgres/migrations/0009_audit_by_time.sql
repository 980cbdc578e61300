-- Ninth version: every audit can be read by time.
CREATE INDEX entry_audit_at ON fencepost.entry_audit (at, id);
CREATE INDEX operation_events_at ON fencepost.operation_events (at, id);
CREATE INDEX grant_audit_at ON fencepost.grant_audit (at, id);
CREATE INDEX grant_archivals_at ON fencepost.grant_archivals (at, id);
CREATE INDEX desk_audit_at ON fencepost.desk_audit (at, id);
