//! What replaces checking SQL at compile time: every statement fits the schema, those that run all
//! the time go by an index, every file is used, and the history only grows.

use crate::support::*;
use fencepost_store::recovery::{postgres, sqlite};
use std::path::Path;

#[tokio::test]
async fn every_statement_of_recovery_prepares_against_the_schema__postgres() {
    let client = connect(&database().await).await;
    for sql in postgres::statements::ALL {
        assert!(sql.text.starts_with(&format!("-- {}", sql.name)), "{}: no head", sql.name);
        let prepared = client.prepare_typed(sql.text, sql.types).await;
        let prepared = prepared.unwrap_or_else(|error| panic!("{}: {error:?}", sql.name));
        assert_eq!(prepared.params(), sql.types, "{}", sql.name);
    }
}

#[test]
fn every_statement_of_recovery_prepares_against_the_schema__sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sqlite");
    fencepost_store::store::sqlite::migrate_to(&path, fencepost_store::store::sqlite::SCHEMA_VERSION)
        .unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    for (name, text) in sqlite::statements::ALL {
        assert!(text.starts_with(&format!("-- {name}")), "{name}: no head");
        connection.prepare(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_file_of_recovery_is_a_statement() {
    for (folder, mut names) in [
        ("postgres", postgres::statements::ALL.iter().map(|sql| sql.name.to_owned()).collect::<Vec<_>>()),
        ("sqlite", sqlite::statements::ALL.iter().map(|(name, _)| (*name).to_owned()).collect()),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/recovery/{folder}/sql"));
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        names.sort();
        assert_eq!(files, names);
    }
}

#[tokio::test]
async fn recovery_looks_for_work_by_an_index() {
    let client = connect(&database().await).await;
    client
        .batch_execute(
            "INSERT INTO fencepost.operations (operation_id, issuer, key_tenant, grant_id, caller_namespace, caller_id,
                 tenant, details_digest, details, status, owner_version, lease_until, submit_by, created_at, updated_at)
             SELECT gen_random_uuid(), 'i', '', 'g' || n, 'n', 'c', '', decode(repeat('ab', 32), 'hex'), '{}',
                    'succeeded', 1, now(), now(), now(), now() FROM generate_series(1, 20000) AS n;
             INSERT INTO fencepost.entries (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, until,
                 cause, created_at, updated_at)
             SELECT 'test:' || n, 'released', decode(repeat('ab', 16), 'hex'), 1, '1-a', decode(repeat('ab', 32), 'hex'),
                 decode(repeat('ab', 16), 'hex'), '{}', now() + interval '1 hour', 'not_run', now(), now()
             FROM generate_series(1, 20000) AS n;
             ANALYZE fencepost.operations, fencepost.entries, fencepost.held_keys",
        )
        .await
        .unwrap();
    for sql in postgres::statements::ALL {
        let rows = client.simple_query(&format!("EXPLAIN (GENERIC_PLAN) {}", sql.text)).await.unwrap();
        for message in rows {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                let line = row.get(0).unwrap_or_default();
                let scan = line.contains("Seq Scan on operations") || line.contains("Seq Scan on entries");
                assert!(!scan, "{}: {line}", sql.name);
            }
        }
    }
}

#[tokio::test]
async fn the_history_of_an_operation_only_grows__postgres() {
    let client = connect(&database().await).await;
    client
        .batch_execute(
            "INSERT INTO fencepost.operation_events (at, operation_id, owner_version, actor, step, result, status, detail)
             VALUES (now(), gen_random_uuid(), 1, 'a', 'take_over', '', 'admitted', '')",
        )
        .await
        .unwrap();
    for change in [
        "UPDATE fencepost.operation_events SET actor = 'b'",
        "DELETE FROM fencepost.operation_events",
        "TRUNCATE fencepost.operation_events",
    ] {
        let error = client.batch_execute(change).await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains("only grows"), "{change}");
    }
}

#[test]
fn the_history_of_an_operation_only_grows__sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sqlite");
    fencepost_store::store::sqlite::migrate_to(&path, fencepost_store::store::sqlite::SCHEMA_VERSION)
        .unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let line = "INTO operation_events VALUES (1, 1, 'x', 1, 'a', 'take_over', '', 'admitted', '')";
    connection.execute(&format!("INSERT {line}"), []).unwrap();
    for change in [
        "UPDATE operation_events SET actor = 'b'".to_owned(),
        "DELETE FROM operation_events".to_owned(),
        format!("INSERT OR REPLACE {line}"),
    ] {
        let error = connection.execute(&change, []).unwrap_err();
        assert!(error.to_string().contains("only grows"), "{change}: {error}");
    }
}
