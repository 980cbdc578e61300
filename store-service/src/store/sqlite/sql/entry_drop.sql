-- Removes the row of one key. Only the sweeper does that.
DELETE FROM entries WHERE key = ?1
