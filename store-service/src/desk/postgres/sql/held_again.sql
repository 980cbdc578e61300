-- held_again: recovery looks again for a held key that it has given to a person; and who says so.
--
-- Invariants: only the version that was seen, only where it was marked for a person, once; nothing happens
-- that the audit does not have. The entry itself is not touched.
-- Isolation: READ COMMITTED, one statement; the mark is looked at again on the locked row. An entry that
-- changes meanwhile has another version, which recovery sees when it takes the key.
-- Locks: the row of held_keys.
-- Outcomes: one row; `wrote`: done. Not: it is not held any more as it was seen, or not marked.
--
-- $1 key $2 fence and $3 time of the version $4 the version as text $5 who $6 action $7 subject $8 reason
WITH written AS (
    UPDATE fencepost.held_keys AS h
    SET attempts = 0, next_at = clock_timestamp(), result = '', for_person = NULL, marked_at = NULL
    FROM fencepost.entries AS e
    WHERE h.key = $1::text AND h.version_fence = $2::int8 AND h.version_updated_at = $3::timestamptz
      AND h.for_person IS NOT NULL
      AND e.key = h.key AND e.state = 'unknown' AND e.until > clock_timestamp()
      AND e.fence = h.version_fence AND e.updated_at = h.version_updated_at
    RETURNING h.key
),
noted AS (
    INSERT INTO fencepost.desk_audit (at, who, action, subject, version_before, state_before, state_after, reason)
    SELECT clock_timestamp(), $5::text, $6::text, $7::text, $4::text, 'for_person', 'unknown', $8::text
    FROM written AS w
    RETURNING id
)
SELECT EXISTS (SELECT FROM written) AND EXISTS (SELECT FROM noted) AS wrote
