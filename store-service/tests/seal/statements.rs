//! What replaces checking SQL at compile time, and checking that the boundary has no hole.

use crate::support::{connect, database};
use fencepost_store::seal::{postgres, sqlite};
use std::path::Path;

#[tokio::test]
async fn every_statement_prepares_against_the_schema_and_goes_by_an_index() {
    let client = connect(&database().await).await;
    client
        .batch_execute(
            "INSERT INTO fencepost.operations
             SELECT gen_random_uuid(), 'i', '', 'g' || n, 'n', 'c', '', decode(repeat('ab', 32), 'hex'), '{}',
                    'succeeded', NULL, 1, now(), now(), now(), now() FROM generate_series(1, 20000) AS n;
             ANALYZE fencepost.operations",
        )
        .await
        .unwrap();
    for sql in postgres::statements::ALL {
        assert!(sql.text.starts_with(&format!("-- {}", sql.name)), "{}: no head", sql.name);
        let prepared = client.prepare_typed(sql.text, sql.types).await;
        let prepared = prepared.unwrap_or_else(|error| panic!("{}: {error:?}", sql.name));
        assert_eq!(prepared.params(), sql.types, "{}", sql.name);
        let rows = client.simple_query(&format!("EXPLAIN (GENERIC_PLAN) {}", sql.text)).await.unwrap();
        for message in rows {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                let line = row.get(0).unwrap_or_default();
                assert!(!line.contains("Seq Scan on operations"), "{}: {line}", sql.name);
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sqlite");
    let version = fencepost_store::store::sqlite::SCHEMA_VERSION;
    fencepost_store::store::sqlite::migrate_to(&path, version).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    for (name, text) in sqlite::statements::ALL {
        assert!(text.starts_with(&format!("-- {name}")), "{name}: no head");
        connection.prepare(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_file_is_a_statement() {
    let in_database = postgres::statements::ALL.iter().map(|sql| sql.name.to_owned()).collect();
    let in_file: Vec<_> = sqlite::statements::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    for (folder, mut names) in [("postgres", in_database), ("sqlite", in_file)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/seal").join(folder).join("sql");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        names.sort();
        assert_eq!(files, names);
    }
}

/// A call with a default in its trait would go past the store behind the boundary, unseen by the compiler.
#[test]
fn every_call_of_a_store_is_handed_on() {
    let source = |path: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path)).unwrap()
    };
    for (declared, stated, boundary) in [
        ("store/mod.rs", "pub trait Store:", "seal/store.rs"),
        ("grant/store.rs", "pub trait GrantStore:", "seal/grants.rs"),
        ("recovery/store.rs", "pub trait RecoveryStore:", "seal/recovery.rs"),
    ] {
        let (declared, boundary) = (source(declared), source(boundary));
        let body = declared.split_once(stated).unwrap().1.split_once("\n}").unwrap().0;
        let calls: Vec<_> = body.split("    fn ").chain(body.split("async fn ")).skip(1).collect();
        let names = calls.iter().filter_map(|call| call.split_once('(')).map(|(name, _)| name.trim());
        let names: std::collections::BTreeSet<_> = names.filter(|name| !name.contains(' ')).collect();
        assert!(names.len() > 9, "{stated} {names:?}");
        for name in names {
            let handed = boundary.contains(&format!("fn {name}("))
                && boundary.split_whitespace().collect::<String>().contains(&format!("self.inner.{name}("));
            assert!(handed, "{stated} {name}");
        }
    }
}
