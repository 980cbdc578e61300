//! What the database itself refuses: entries whose columns do not fit their state.

use crate::bed::*;
use fencepost_store::store::postgres::{SCHEMA_VERSION, migrate_to};

/// Tries every state with every choice of filled columns, and says which were taken.
const TRY_ALL: &str = "
CREATE FUNCTION pg_temp.taken() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    s text;
    ends boolean;
BEGIN
    FOREACH s IN ARRAY ARRAY['claimed', 'completed', 'unknown', 'released', 'other'] LOOP
        FOR mask IN 0..1023 LOOP
            FOREACH ends IN ARRAY ARRAY[true, false] LOOP
                BEGIN
                    INSERT INTO fencepost.entries
                        (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, lease_until, run_until, on_lost,
                         claim_ttl_ms, unknown_ttl_ms, until, cause, status, headers, body, completed_at, created_at,
                         updated_at)
                    VALUES ('k', s, decode(repeat('ab', 16), 'hex'), 1, '1-a', decode(repeat('ab', 32), 'hex'),
                            decode(repeat('ab', 16), 'hex'), '{}', CASE WHEN mask & 1 > 0 THEN now() END,
                            CASE WHEN mask & 2 > 0 THEN now() END, CASE WHEN mask & 4 > 0 THEN 'hold' END,
                            CASE WHEN mask & 8 > 0 THEN 1 END, CASE WHEN mask & 16 > 0 THEN 1 END,
                            CASE WHEN ends THEN now() ELSE 'infinity' END, CASE WHEN mask & 32 > 0 THEN 'x' END,
                            CASE WHEN mask & 64 > 0 THEN 200 END, CASE WHEN mask & 128 > 0 THEN ''::bytea END,
                            CASE WHEN mask & 256 > 0 THEN ''::bytea END, CASE WHEN mask & 512 > 0 THEN now() END,
                            now(), now());
                    DELETE FROM fencepost.entries;
                    RETURN NEXT concat_ws(' ', s, mask, ends);
                EXCEPTION WHEN check_violation THEN
                END;
            END LOOP;
        END LOOP;
    END LOOP;
END
$$";

async fn at_version(version: i64) -> tokio_postgres::Client {
    let url = database().await;
    migrate_to(&url, version).await.unwrap();
    connect(&url).await
}

async fn taken(client: &tokio_postgres::Client) -> Vec<String> {
    client.batch_execute(TRY_ALL).await.unwrap();
    let rows = client.query("SELECT pg_temp.taken()", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn an_entry_has_the_columns_of_its_state_and_no_others() {
    // 31: what a claim has. 32: a cause. 960: an answer.
    let expected = ["claimed 31 f", "completed 960 t", "unknown 32 t", "released 32 t"];
    assert_eq!(taken(&at_version(SCHEMA_VERSION).await).await, expected);
    assert_eq!(taken(&at_version(10).await).await, expected, "the constraints of the versions before");
}

#[tokio::test]
async fn values_that_no_entry_has_are_refused_whoever_writes_them() {
    let client = at_version(SCHEMA_VERSION).await;
    let bytes = |len: usize| format!("decode(repeat('ab', {len}), 'hex')");
    let insert = |state: &str, changes: &[(&str, String)]| {
        let mut columns = vec![
            ("state", format!("'{state}'")),
            ("key", "'k'".into()),
            ("token", bytes(16)),
            ("fence", "1".into()),
            ("scheme", "'1-a'".into()),
            ("fingerprint", bytes(32)),
            ("scope", bytes(16)),
            ("dead_tokens", "'{}'".into()),
            ("created_at", "now()".into()),
            ("updated_at", "now()".into()),
        ];
        columns.extend(match state {
            "claimed" => vec![
                ("lease_until", "now()".into()),
                ("run_until", "now()".into()),
                ("on_lost", "'rerun'".into()),
                ("claim_ttl_ms", "1".into()),
                ("unknown_ttl_ms", "1".into()),
                ("until", "'infinity'".to_owned()),
            ],
            _ => vec![
                ("until", "now()".into()),
                ("status", "599".into()),
                ("headers", "''".into()),
                ("body", "''".into()),
                ("completed_at", "now()".into()),
            ],
        });
        for (name, value) in changes {
            columns.iter_mut().find(|(column, _)| column == name).unwrap().1.clone_from(value);
        }
        let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        format!("INSERT INTO fencepost.entries ({}) VALUES ({})", names.join(", "), values.join(", "))
    };
    for state in ["claimed", "completed"] {
        client.batch_execute(&insert(state, &[])).await.unwrap();
        client.batch_execute("DELETE FROM fencepost.entries").await.unwrap();
    }
    let both = [
        ("token", bytes(15)),
        ("fingerprint", bytes(33)),
        ("scope", bytes(0)),
        ("fence", "0".into()),
        ("fence", "9007199254740992".into()),
        ("dead_tokens", format!("array_fill({}, ARRAY[9])", bytes(16))),
    ];
    let claimed =
        [("on_lost", "'again'".to_owned()), ("claim_ttl_ms", "0".into()), ("unknown_ttl_ms", "0".into())];
    let completed = [("status", "199".to_owned()), ("status", "600".into())];
    let of = |state: &'static str, changes: &[(&'static str, String)]| {
        changes.iter().map(|change| (state, change.clone())).collect::<Vec<_>>()
    };
    let tries =
        [of("claimed", &both), of("completed", &both), of("claimed", &claimed), of("completed", &completed)];
    for (state, change) in tries.concat() {
        let told = client.batch_execute(&insert(state, std::slice::from_ref(&change))).await.unwrap_err();
        let code = told.code().unwrap().code();
        assert_eq!(code, "23514", "{state} {change:?}: {told:?}");
    }
}
