-- Eleventh version: what an entry must look like is checked by one function. PostgreSQL reads and
-- prepares the text of every CHECK constraint anew for each statement that writes; seventeen of them
-- cost as much as the rest of a claim. The function is read once for a session, and prepares only
-- what the row's state needs. It demands what the constraints did: the columns of a state are filled
-- exactly in that state.
--
-- NOT VALID: every row that is there has passed the constraints that go in the same transaction, so nobody needs
-- to wait while all of them are read again. Names without a schema are those of pg_catalog.
CREATE FUNCTION fencepost.entry_is_whole(
    state text, token bytea, fence bigint, fingerprint bytea, scope bytea, dead_tokens bytea[],
    lease_until timestamptz, run_until timestamptz, on_lost text, claim_ttl_ms integer, unknown_ttl_ms bigint,
    until timestamptz, cause text, status smallint, headers bytea, body bytea, completed_at timestamptz
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF octet_length(token) <> 16 OR octet_length(fingerprint) <> 32 OR octet_length(scope) <> 16
            OR cardinality(dead_tokens) > 8 OR fence < 1 OR fence > 9007199254740991 THEN
        RETURN false;
    END IF;
    IF state = 'claimed' THEN
        RETURN num_nulls(lease_until, run_until, on_lost, claim_ttl_ms, unknown_ttl_ms) = 0
            AND num_nonnulls(cause, status, headers, body, completed_at) = 0
            AND until = 'infinity' AND on_lost IN ('hold', 'rerun') AND claim_ttl_ms > 0 AND unknown_ttl_ms > 0;
    END IF;
    IF until = 'infinity' OR num_nonnulls(lease_until, run_until, on_lost, claim_ttl_ms, unknown_ttl_ms) > 0 THEN
        RETURN false;
    END IF;
    IF state = 'completed' THEN
        RETURN num_nulls(status, headers, body, completed_at) = 0 AND cause IS NULL AND status BETWEEN 200 AND 599;
    END IF;
    RETURN state IN ('unknown', 'released') AND cause IS NOT NULL
        AND num_nonnulls(status, headers, body, completed_at) = 0;
END
$$;
GRANT EXECUTE ON FUNCTION fencepost.entry_is_whole TO PUBLIC;
-- The names of the old ones were given by PostgreSQL.
DO $$
DECLARE
    old record;
BEGIN
    FOR old IN
        SELECT c.conname FROM pg_constraint AS c
        WHERE c.conrelid = 'fencepost.entries'::regclass AND c.contype = 'c' AND c.conname ~ '^entries_(.+_)?check[0-9]*$'
    LOOP
        EXECUTE format('ALTER TABLE fencepost.entries DROP CONSTRAINT %I', old.conname);
    END LOOP;
END
$$;
ALTER TABLE fencepost.entries
    ADD CONSTRAINT entries_whole CHECK (fencepost.entry_is_whole(
        state, token, fence, fingerprint, scope, dead_tokens, lease_until, run_until, on_lost, claim_ttl_ms,
        unknown_ttl_ms, until, cause, status, headers, body, completed_at)) NOT VALID;
