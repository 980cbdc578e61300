-- operation_show: one operation, for people.
--
-- `resting`: the last change is that recovery put it aside, and as this owner it has sent nothing.
-- Isolation: any. Locks: none. Outcomes: one row, or none.
--
-- $1 operation id
SELECT o.operation_id::text AS operation_id, o.issuer, o.key_tenant, o.grant_id, o.caller_namespace, o.caller_id,
       o.tenant, o.details, o.status, o.reference, o.owner_version, o.lease_until, o.submit_by, o.created_at,
       o.updated_at, w.cause,
       EXISTS (SELECT FROM fencepost.operation_events AS r
               WHERE r.operation_id = o.operation_id AND r.owner_version = o.owner_version
                 AND r.step = 'postpone' AND r.at = o.updated_at)
       AND NOT EXISTS (SELECT FROM fencepost.operation_events AS r
                       WHERE r.operation_id = o.operation_id AND r.owner_version = o.owner_version
                         AND r.step = 'submit') AS resting,
       clock_timestamp() AS now
FROM fencepost.operations AS o
LEFT JOIN LATERAL (
    -- The last conclusion of recovery or of a person. One with another status was overtaken by the owner's.
    SELECT e.step, e.result, e.detail, e.status
    FROM fencepost.operation_events AS e
    WHERE e.operation_id = o.operation_id AND e.step IN ('record', 'postpone', 'look_again')
    ORDER BY e.id DESC
    LIMIT 1
) AS l ON true
CROSS JOIN LATERAL (
    SELECT CASE WHEN o.status IN ('succeeded', 'failed') THEN NULL
                WHEN l.step IS NULL OR l.status <> o.status THEN
                    CASE WHEN o.status <> 'admitted' THEN 'owner' END
                WHEN l.step = 'record' THEN split_part(l.detail, ':', 1)
                WHEN l.step = 'postpone' AND l.result <> '' THEN l.result
                ELSE l.step END AS cause
) AS w
WHERE o.operation_id = $1::text::uuid
