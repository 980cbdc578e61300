-- held_mark: for a person. ?1 key ?2 turn ?3 why ?4 what was known ?5 now
UPDATE held_keys SET for_person = ?3, marked_at = ?5, result = ?4, attempts = attempts + 1
WHERE key = ?1 AND turn = ?2 AND for_person IS NULL
