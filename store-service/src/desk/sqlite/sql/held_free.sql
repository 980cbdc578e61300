-- held_free: a held key may run again. ?1 key ?2 cause ?3 until when that is remembered ?4 now
UPDATE entries SET state = 'released', cause = ?2, until = ?3, updated_at = ?4
WHERE key = ?1 AND state = 'unknown' AND cause = 'held'
