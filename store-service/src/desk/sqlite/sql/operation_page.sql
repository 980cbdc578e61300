-- operation_page: the next operations to look at, in the order of their ids, and whether each is of one
-- caller.
--
-- ?1 ids behind this one (null: all) ?2 how many ?3 what details that name the scope contain ?4 caller's
-- namespace and ?5 id (null: by the details)
SELECT o.operation_id, o.status, o.owner_version,
       coalesce(instr(o.details, ?3) > 0, 0) OR coalesce(o.caller_namespace = ?4 AND o.caller_id = ?5, 0) AS mine
FROM operations AS o
WHERE ?1 IS NULL OR o.operation_id > ?1
ORDER BY o.operation_id
LIMIT ?2
