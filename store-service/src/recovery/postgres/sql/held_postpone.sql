-- held_postpone: nothing is known about a held key yet; recovery comes back later.
--
-- Isolation: READ COMMITTED, one statement. Locks: the row of held_keys.
-- Outcomes: a row: done. None: it is another instance's turn.
--
-- $1 key $2 turn $3 rest (ms) $4 is the attempt counted? $5 what was known
UPDATE fencepost.held_keys AS h
SET next_at = clock_timestamp() + $3::int8 * interval '1 millisecond',
    attempts = h.attempts + CASE WHEN $4::bool THEN 1 ELSE 0 END,
    result = $5::text
WHERE h.key = $1::text AND h.turn = $2::int8 AND h.for_person IS NULL
RETURNING h.turn
