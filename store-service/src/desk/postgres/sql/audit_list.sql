-- audit_list: lines of every audit in one order, the newest first, for people.
--
-- Purpose: entry_audit, operation_events, grant_audit, grant_archivals and desk_audit, as one list.
-- Isolation: any. Locks: none. Each part goes by its index over (at, id), or by the subject's.
-- Outcomes: at most $15 rows. `source` tells the table, and with `id` the line.
--
-- $1 kinds $2 action $3 who $4 not before $5 before $6 subject (each null: any) $7 the subject as an
-- operation's id, $8 to $10 as a grant's name (null: it is none) $11 prefixes of keys, nothing else then
-- (null: all) $12 to $14 lines behind this time, source and id (null: from the newest) $15 limit
SELECT l.source, l.id, l.at, l.who, l.kind, l.action, l.subject, l.issuer, l.key_tenant, l.grant_id, l.version,
       l.state_before, l.state_after, l.forced, l.reason
FROM (
    (SELECT 1 AS source, a.id, a.at, a.who, 'entry' AS kind, a.action, a.key AS subject, NULL AS issuer,
            NULL AS key_tenant, NULL AS grant_id,
            a.version_fence || '.' || (extract(epoch FROM a.version_updated_at) * 1000000)::int8 AS version,
            a.state_before, a.state_after, a.forced, a.reason
     FROM fencepost.entry_audit AS a
     WHERE ($1::text[] IS NULL OR 'entry' = ANY ($1::text[])) AND ($2::text IS NULL OR a.action = $2::text)
       AND ($3::text IS NULL OR a.who = $3::text) AND ($4::timestamptz IS NULL OR a.at >= $4::timestamptz)
       AND ($5::timestamptz IS NULL OR a.at < $5::timestamptz) AND ($6::text IS NULL OR a.key = $6::text)
       AND ($11::text[] IS NULL OR split_part(a.key, ':', 1) = ANY ($11::text[]))
       AND ($12::timestamptz IS NULL
            OR (a.at <= $12::timestamptz AND (a.at, 1, a.id) < ($12::timestamptz, $13::int4, $14::int8)))
     ORDER BY a.at DESC, a.id DESC LIMIT $15::int8)
    UNION ALL
    (SELECT 2, o.id, o.at, o.actor, 'operation', o.step, o.operation_id::text, NULL, NULL, NULL,
            o.owner_version::text, o.result, o.status, false, o.detail
     FROM fencepost.operation_events AS o
     WHERE ($1::text[] IS NULL OR 'operation' = ANY ($1::text[])) AND ($2::text IS NULL OR o.step = $2::text)
       AND ($3::text IS NULL OR o.actor = $3::text) AND ($4::timestamptz IS NULL OR o.at >= $4::timestamptz)
       AND ($5::timestamptz IS NULL OR o.at < $5::timestamptz)
       AND ($6::text IS NULL OR o.operation_id = $7::text::uuid)
       AND $11::text[] IS NULL
       AND ($12::timestamptz IS NULL
            OR (o.at <= $12::timestamptz AND (o.at, 2, o.id) < ($12::timestamptz, $13::int4, $14::int8)))
     ORDER BY o.at DESC, o.id DESC LIMIT $15::int8)
    UNION ALL
    (SELECT 3, g.id, g.at, g.actor, 'grant', g.action, '', g.issuer, g.key_tenant, g.grant_id, '', '', g.outcome,
            false, g.reason
     FROM fencepost.grant_audit AS g
     WHERE ($1::text[] IS NULL OR 'grant' = ANY ($1::text[])) AND ($2::text IS NULL OR g.action = $2::text)
       AND ($3::text IS NULL OR g.actor = $3::text) AND ($4::timestamptz IS NULL OR g.at >= $4::timestamptz)
       AND ($5::timestamptz IS NULL OR g.at < $5::timestamptz)
       AND ($6::text IS NULL
            OR (g.issuer = $8::text AND g.key_tenant = $9::text AND g.grant_id = $10::text))
       AND $11::text[] IS NULL
       AND ($12::timestamptz IS NULL
            OR (g.at <= $12::timestamptz AND (g.at, 3, g.id) < ($12::timestamptz, $13::int4, $14::int8)))
     ORDER BY g.at DESC, g.id DESC LIMIT $15::int8)
    UNION ALL
    (SELECT 4, r.id, r.at, 'service', 'issuer', 'archive', r.issuer, NULL, NULL, NULL, '', '',
            r.archived || ' rows archived, ' || r.used || ' of them used', false, ''
     FROM fencepost.grant_archivals AS r
     WHERE ($1::text[] IS NULL OR 'issuer' = ANY ($1::text[])) AND ($2::text IS NULL OR $2::text = 'archive')
       AND ($3::text IS NULL OR $3::text = 'service') AND ($4::timestamptz IS NULL OR r.at >= $4::timestamptz)
       AND ($5::timestamptz IS NULL OR r.at < $5::timestamptz) AND ($6::text IS NULL OR r.issuer = $6::text)
       AND $11::text[] IS NULL
       AND ($12::timestamptz IS NULL
            OR (r.at <= $12::timestamptz AND (r.at, 4, r.id) < ($12::timestamptz, $13::int4, $14::int8)))
     ORDER BY r.at DESC, r.id DESC LIMIT $15::int8)
    UNION ALL
    (SELECT 5, d.id, d.at, d.who, split_part(d.subject, ' ', 1), d.action,
            substr(d.subject, strpos(d.subject, ' ') + 1), NULL, NULL, NULL, d.version_before, d.state_before,
            d.state_after, false, d.reason
     FROM fencepost.desk_audit AS d
     WHERE ($1::text[] IS NULL OR split_part(d.subject, ' ', 1) = ANY ($1::text[]))
       AND ($2::text IS NULL OR d.action = $2::text)
       AND ($3::text IS NULL OR d.who = $3::text) AND ($4::timestamptz IS NULL OR d.at >= $4::timestamptz)
       AND ($5::timestamptz IS NULL OR d.at < $5::timestamptz)
       AND ($6::text IS NULL
            OR d.subject IN ('entry ' || $6::text, 'grant ' || $6::text, 'hold ' || $6::text, 'scope ' || $6::text,
                             'caller ' || $6::text))
       AND ($11::text[] IS NULL
            OR (d.subject LIKE 'entry %' AND split_part(substr(d.subject, 7), ':', 1) = ANY ($11::text[])))
       AND ($12::timestamptz IS NULL
            OR (d.at <= $12::timestamptz AND (d.at, 5, d.id) < ($12::timestamptz, $13::int4, $14::int8)))
     ORDER BY d.at DESC, d.id DESC LIMIT $15::int8)
) AS l
ORDER BY l.at DESC, l.source DESC, l.id DESC
LIMIT $15::int8
