-- audit_list: lines of every audit in one order, the newest first. See the PostgreSQL statement of the same
-- name.
--
-- ?1 kinds as a JSON list ?2 action ?3 who ?4 not before ?5 before ?6 subject (each null: any) ?7 the
-- subject as an operation's id, ?8 to ?10 as a grant's name (null: it is none) ?11 prefixes of keys as a
-- JSON list, nothing else then (null: all) ?12 to ?14 lines behind this time, source and id (null: from the
-- newest) ?15 limit
SELECT l.source, l.id, l.at, l.who, l.kind, l.action, l.subject, l.issuer, l.key_tenant, l.grant_id, l.version,
       l.state_before, l.state_after, l.forced, l.reason
FROM (
    SELECT * FROM (
        SELECT 1 AS source, a.id, a.at, a.who, 'entry' AS kind, a.action, a.key AS subject, NULL AS issuer,
               NULL AS key_tenant, NULL AS grant_id, a.version_fence || '.' || a.version_updated_at AS version,
               a.state_before, a.state_after, a.forced, a.reason
        FROM entry_audit AS a
        WHERE (?1 IS NULL OR 'entry' IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR a.action = ?2)
          AND (?3 IS NULL OR a.who = ?3) AND (?4 IS NULL OR a.at >= ?4) AND (?5 IS NULL OR a.at < ?5)
          AND (?6 IS NULL OR a.key = ?6)
          AND (?11 IS NULL OR substr(a.key, 1, instr(a.key, ':') - 1) IN (SELECT value FROM json_each(?11)))
          AND (?12 IS NULL OR (a.at, 1, a.id) < (?12, ?13, ?14))
        ORDER BY a.at DESC, a.id DESC LIMIT ?15)
    UNION ALL
    SELECT * FROM (
        SELECT 2, o.id, o.at, o.actor, 'operation', o.step, o.operation_id, NULL, NULL, NULL,
               CAST(o.owner_version AS TEXT), o.result, o.status, 0, o.detail
        FROM operation_events AS o
        WHERE (?1 IS NULL OR 'operation' IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR o.step = ?2)
          AND (?3 IS NULL OR o.actor = ?3) AND (?4 IS NULL OR o.at >= ?4) AND (?5 IS NULL OR o.at < ?5)
          AND (?6 IS NULL OR o.operation_id = ?7) AND ?11 IS NULL
          AND (?12 IS NULL OR (o.at, 2, o.id) < (?12, ?13, ?14))
        ORDER BY o.at DESC, o.id DESC LIMIT ?15)
    UNION ALL
    SELECT * FROM (
        SELECT 3, g.id, g.at, g.actor, 'grant', g.action, '', g.issuer, g.key_tenant, g.grant_id, '', '',
               g.outcome, 0, g.reason
        FROM grant_audit AS g
        WHERE (?1 IS NULL OR 'grant' IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR g.action = ?2)
          AND (?3 IS NULL OR g.actor = ?3) AND (?4 IS NULL OR g.at >= ?4) AND (?5 IS NULL OR g.at < ?5)
          AND (?6 IS NULL OR (g.issuer = ?8 AND g.key_tenant = ?9 AND g.grant_id = ?10)) AND ?11 IS NULL
          AND (?12 IS NULL OR (g.at, 3, g.id) < (?12, ?13, ?14))
        ORDER BY g.at DESC, g.id DESC LIMIT ?15)
    UNION ALL
    SELECT * FROM (
        SELECT 4, r.id, r.at, 'service', 'issuer', 'archive', r.issuer, NULL, NULL, NULL, '', '',
               r.archived || ' rows archived, ' || r.used || ' of them used', 0, ''
        FROM grant_archivals AS r
        WHERE (?1 IS NULL OR 'issuer' IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR ?2 = 'archive')
          AND (?3 IS NULL OR ?3 = 'service') AND (?4 IS NULL OR r.at >= ?4) AND (?5 IS NULL OR r.at < ?5)
          AND (?6 IS NULL OR r.issuer = ?6) AND ?11 IS NULL
          AND (?12 IS NULL OR (r.at, 4, r.id) < (?12, ?13, ?14))
        ORDER BY r.at DESC, r.id DESC LIMIT ?15)
    UNION ALL
    SELECT * FROM (
        SELECT 5, d.id, d.at, d.who, substr(d.subject, 1, instr(d.subject, ' ') - 1), d.action,
               substr(d.subject, instr(d.subject, ' ') + 1), NULL, NULL, NULL, d.version_before, d.state_before,
               d.state_after, 0, d.reason
        FROM desk_audit AS d
        WHERE (?1 IS NULL OR substr(d.subject, 1, instr(d.subject, ' ') - 1) IN (SELECT value FROM json_each(?1)))
          AND (?2 IS NULL OR d.action = ?2)
          AND (?3 IS NULL OR d.who = ?3) AND (?4 IS NULL OR d.at >= ?4) AND (?5 IS NULL OR d.at < ?5)
          AND (?6 IS NULL OR d.subject IN ('entry ' || ?6, 'grant ' || ?6, 'hold ' || ?6, 'scope ' || ?6,
                                           'caller ' || ?6))
          AND (?11 IS NULL
               OR (d.subject LIKE 'entry %' AND substr(d.subject, 7, instr(d.subject, ':') - 7)
                   IN (SELECT value FROM json_each(?11))))
          AND (?12 IS NULL OR (d.at, 5, d.id) < (?12, ?13, ?14))
        ORDER BY d.at DESC, d.id DESC LIMIT ?15)
) AS l
ORDER BY l.at DESC, l.source DESC, l.id DESC
LIMIT ?15
