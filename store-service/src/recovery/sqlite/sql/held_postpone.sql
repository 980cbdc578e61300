-- held_postpone: later. ?1 key ?2 turn ?3 next_at ?4 attempts to add ?5 what was known
UPDATE held_keys SET next_at = ?3, attempts = attempts + ?4, result = ?5
WHERE key = ?1 AND turn = ?2 AND for_person IS NULL
