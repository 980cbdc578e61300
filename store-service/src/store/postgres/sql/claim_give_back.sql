-- claim_give_back: the service gives back a claim that it won for a caller that went away.
--
-- Purpose: free the key at once, but only if this very claim is still there: a resend with the
-- same token may have made the claim again, and then it is in use. Every claim writes an end of
-- its own, so the end of the lease tells them apart.
-- Invariants: a claim made again is never given back here.
-- Isolation: READ COMMITTED, one statement; the condition is checked on the locked row.
-- Locks: the row, if it looks right.
-- Outcomes: one row when it was given back (`waited` says whether callers of other instances wait
-- for it), none otherwise.
--
-- $1 key $2 token $3 end of the lease $4 cause $5 lifetime of the tombstone (ms);
-- $6 now (null: the database's clock)
UPDATE fencepost.entries AS e
SET state = 'released', cause = $4::text, updated_at = coalesce($6::timestamptz, clock_timestamp()),
    until = coalesce($6::timestamptz, clock_timestamp()) + $5::int8 * interval '1 millisecond',
    lease_until = NULL, run_until = NULL, on_lost = NULL, claim_ttl_ms = NULL, unknown_ttl_ms = NULL
WHERE e.key = $1::text
  AND e.token = $2::bytea
  AND e.state = 'claimed'
  AND e.lease_until = $3::timestamptz
RETURNING e.waited
