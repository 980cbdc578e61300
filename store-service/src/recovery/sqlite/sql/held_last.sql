-- held_last: the last key of one batch of tidying; none where the end is reached.
--
-- ?1 keys behind this one (null: from the start) ?2 batch, less one
SELECT key FROM held_keys WHERE ?1 IS NULL OR key > ?1 ORDER BY key LIMIT 1 OFFSET ?2
