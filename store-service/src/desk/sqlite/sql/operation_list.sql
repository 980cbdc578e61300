-- operation_list: operations in the order of their ids, for people. `resting`: see the PostgreSQL statement.
--
-- ?1 statuses as a JSON list ?2 issuer ?3 tenant ?4 caller's namespace ?5 caller ?6 admitted at or
-- before ?7 ids behind this one ?8 id of the only one (each null: any) ?9 limit ?10 cause (null: any)
SELECT o.*
FROM (
SELECT o.operation_id, o.issuer, o.key_tenant, o.grant_id, o.caller_namespace, o.caller_id, o.tenant, o.details,
       o.status, o.reference, o.owner_version, o.lease_until, o.submit_by, o.created_at, o.updated_at,
       EXISTS (SELECT 1 FROM operation_events AS r
               WHERE r.operation_id = o.operation_id AND r.owner_version = o.owner_version
                 AND r.step = 'postpone' AND r.at = o.updated_at)
       AND NOT EXISTS (SELECT 1 FROM operation_events AS r
                       WHERE r.operation_id = o.operation_id AND r.owner_version = o.owner_version
                         AND r.step = 'submit') AS resting,
       CASE WHEN o.status IN ('succeeded', 'failed') THEN NULL
            WHEN l.step IS NULL OR l.status <> o.status THEN CASE WHEN o.status <> 'admitted' THEN 'owner' END
            WHEN l.step = 'record' THEN substr(l.detail, 1, instr(l.detail || ':', ':') - 1)
            WHEN l.step = 'postpone' AND l.result <> '' THEN l.result
            ELSE l.step END AS cause
FROM operations AS o
-- The last conclusion of recovery or of a person. One with another status was overtaken by the owner's.
LEFT JOIN operation_events AS l ON l.id = (
    SELECT max(e.id) FROM operation_events AS e
    WHERE e.operation_id = o.operation_id AND e.step IN ('record', 'postpone', 'look_again'))
WHERE (?1 IS NULL OR o.status IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR o.issuer = ?2)
  AND (?3 IS NULL OR o.tenant = ?3)
  AND (?4 IS NULL OR o.caller_namespace = ?4)
  AND (?5 IS NULL OR o.caller_id = ?5)
  AND (?6 IS NULL OR o.created_at <= ?6)
  AND (?7 IS NULL OR o.operation_id > ?7)
  AND (?8 IS NULL OR o.operation_id = ?8)
) AS o
WHERE ?10 IS NULL OR o.cause = ?10
ORDER BY o.operation_id
LIMIT ?9
