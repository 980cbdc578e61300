-- held_note: that a person freed a held key, in the audit of entries.
--
-- ?1 now ?2 who ?3 key ?4 fence and ?5 time of the version before ?6 reason
INSERT INTO entry_audit (at, who, action, key, version_fence, version_updated_at, state_before, state_after,
                         forced, reason)
VALUES (?1, ?2, 'release', ?3, ?4, ?5, 'unknown', 'released', 0, ?6)
