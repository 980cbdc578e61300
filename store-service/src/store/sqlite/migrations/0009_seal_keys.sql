-- Ninth version: ids of the keys that answers may be sealed with. See the PostgreSQL migration of the
-- same name.
CREATE TABLE seal_keys (
    id       TEXT    NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 16),
    added_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
