-- Eighth version: what every claim and every heartbeat looks at goes by an index. Our sessions forbid
-- sequential scans; a table without an index that fits is then planned at a cost so high that
-- PostgreSQL before 18 compiles each execution (jit).
CREATE INDEX holds_standing ON fencepost.holds (id) WHERE lifted_at IS NULL;
CREATE INDEX instances_beat_at ON fencepost.instances (beat_at);
