-- held_mark: a held key is for a person. It stays held; recovery looks at it no more.
--
-- Isolation: READ COMMITTED, one statement. Locks: the row of held_keys.
-- Outcomes: a row: done. None: it is another instance's turn.
--
-- $1 key $2 turn $3 why $4 what was known
UPDATE fencepost.held_keys AS h
SET for_person = $3::text, marked_at = clock_timestamp(), result = $4::text, attempts = h.attempts + 1
WHERE h.key = $1::text AND h.turn = $2::int8 AND h.for_person IS NULL
RETURNING h.turn
