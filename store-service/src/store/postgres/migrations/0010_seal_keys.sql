-- Tenth version: ids of the keys that answers may be sealed with, so that a start knows which keys it
-- needs without looking at the answers. A sealed answer lies in the columns of an open one: its header
-- block begins with the byte f5, and an open one with 00.
CREATE TABLE fencepost.seal_keys (
    id       text COLLATE "C" NOT NULL PRIMARY KEY CHECK (id ~ '^[a-z0-9._-]{1,16}$'),
    added_at timestamptz NOT NULL
);
