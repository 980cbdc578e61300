-- Second version: the sweeper finds what is due without reading the table.
CREATE INDEX entries_until ON entries (until) WHERE state <> 'claimed';
CREATE INDEX entries_lease ON entries (lease_until) WHERE state = 'claimed';
