-- operation_list: operations in the order of their ids, for people.
--
-- `resting`: the last change is that recovery put it aside, and as this owner it has sent nothing.
-- Isolation: any. Locks: none.
-- Outcomes: at most $8 rows.
--
-- $1 statuses $2 issuer $3 tenant $4 caller's namespace $5 caller $6 age in ms at least $7 ids behind
-- this one (each null: any) $8 limit $9 cause (null: any)
SELECT o.operation_id::text AS operation_id, o.issuer, o.key_tenant, o.grant_id, o.caller_namespace, o.caller_id,
       o.tenant, o.details, o.status, o.reference, o.owner_version, o.lease_until, o.submit_by, o.created_at,
       o.updated_at, w.cause,
       EXISTS (SELECT FROM fencepost.operation_events AS r
               WHERE r.operation_id = o.operation_id AND r.owner_version = o.owner_version
                 AND r.step = 'postpone' AND r.at = o.updated_at)
       AND NOT EXISTS (SELECT FROM fencepost.operation_events AS r
                       WHERE r.operation_id = o.operation_id AND r.owner_version = o.owner_version
                         AND r.step = 'submit') AS resting,
       c.now
FROM (SELECT clock_timestamp() AS now) AS c
CROSS JOIN fencepost.operations AS o
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
WHERE ($1::text[] IS NULL OR o.status = ANY ($1::text[]))
  AND ($2::text IS NULL OR o.issuer = $2::text)
  AND ($3::text IS NULL OR o.tenant = $3::text)
  AND ($4::text IS NULL OR o.caller_namespace = $4::text)
  AND ($5::text IS NULL OR o.caller_id = $5::text)
  AND ($6::int8 IS NULL OR o.created_at <= c.now - $6::int8 * interval '1 millisecond')
  AND ($7::text IS NULL OR o.operation_id > $7::text::uuid)
  AND ($9::text IS NULL OR w.cause = $9::text)
ORDER BY o.operation_id
LIMIT $8::int8
