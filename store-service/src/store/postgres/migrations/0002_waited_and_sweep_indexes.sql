-- Second version: a row says whether another instance's caller waits for it, and the sweeper finds
-- what is due without reading the table.
ALTER TABLE fencepost.entries ADD COLUMN waited boolean NOT NULL DEFAULT false;

CREATE INDEX entries_until ON fencepost.entries (until) WHERE state <> 'claimed';
CREATE INDEX entries_lease ON fencepost.entries (lease_until) WHERE state = 'claimed';
