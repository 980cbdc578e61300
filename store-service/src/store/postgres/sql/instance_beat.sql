-- instance_beat: this instance reaches the database; do the others?
--
-- Purpose: an instance that does not reach it can't pass on renewals, and its callers need time to
-- find another one. So for a while after its last beat nobody calls their claims lost. An instance
-- that stays away longer counts as gone: by then its callers are led elsewhere.
-- Isolation: READ COMMITTED, one statement. The identity is that of the database which took the
-- beat.
-- Locks: its own row, and rows that are long gone.
-- Outcomes: one row: identity, and whether another instance has just been out of reach.
--
-- $1 instance $2 silence after which an instance counts as out of reach (ms) $3 ... and as gone (ms)
-- $4 now (null: the database's clock)
WITH clock AS MATERIALIZED (
    SELECT coalesce($4::timestamptz, clock_timestamp()) AS now
),
beat AS (
    INSERT INTO fencepost.instances AS i (instance, beat_at)
    SELECT $1::text, c.now FROM clock AS c
    ON CONFLICT (instance) DO UPDATE SET beat_at = excluded.beat_at
    RETURNING i.instance
),
forgotten AS (
    DELETE FROM fencepost.instances AS i
    USING clock AS c
    WHERE i.instance <> $1::text AND i.beat_at < c.now - interval '1 hour'
)
SELECT m.store_id,
       EXISTS (
           SELECT FROM fencepost.instances AS i CROSS JOIN clock AS c
           WHERE i.instance <> $1::text
             AND i.beat_at < c.now - $2::int8 * interval '1 millisecond'
             AND i.beat_at >= c.now - $3::int8 * interval '1 millisecond'
       ) AS disturbed
FROM fencepost.meta AS m
CROSS JOIN beat AS b
WHERE m.one
