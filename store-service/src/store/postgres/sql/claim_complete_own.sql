-- claim_complete_own: answers of claims that their tokens still hold.
--
-- Purpose: what nearly every answer needs, by a statement that is a fraction of claim_complete: keep
-- the answer where the key is claimed by this token, whatever the clock says about the lease. For any other
-- row, and for none, claim_complete decides.
-- Invariants: only the holder's claim ends; what the row says about the request and its fence stays.
-- Isolation: READ COMMITTED, one statement. The condition is checked again on the locked row. The
-- clock may have been read before a wait for the lock: the answer then ends earlier by that wait.
-- Locks: the rows of the holders, in the order of the keys, which is that of the parameters.
-- Outcomes: one row for each answer that was stored (`waited` says whether callers of other instances wait for it).
--
-- $1 keys (sorted, none twice) $2 tokens $3 statuses $4 headers $5 bodies $6 ttl_ms; $7 now (null: the
-- database's clock)
UPDATE fencepost.entries AS e
SET state = 'completed', lease_until = NULL, run_until = NULL, on_lost = NULL, claim_ttl_ms = NULL,
    unknown_ttl_ms = NULL, until = a.now + a.ttl_ms * interval '1 millisecond', cause = NULL, status = a.status,
    headers = a.headers, body = a.body, completed_at = a.now, updated_at = a.now
FROM (
    SELECT k.*, coalesce($7::timestamptz, clock_timestamp()) AS now
    FROM unnest($1::text[], $2::bytea[], $3::int2[], $4::bytea[], $5::bytea[], $6::int8[])
             AS k (key, token, status, headers, body, ttl_ms)
) AS a
-- The first condition has the rows found by primary key, whichever side the plan begins with. The last
-- one is `state = 'claimed'` in words that no partial index fits: only a claim has a lease.
WHERE e.key = ANY ($1::text[]) AND e.key = a.key AND e.token = a.token AND e.lease_until IS NOT NULL
RETURNING e.key, e.waited
