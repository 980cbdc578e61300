//! What replaces checking SQL at compile time: every statement fits the schema, goes by an index,
//! and every file is used.

use crate::support::*;
use fencepost_store::grant::postgres::statements::ALL;
use std::path::Path;

#[tokio::test]
async fn every_statement_prepares_against_the_schema() {
    let client = connect(&database().await).await;
    for sql in ALL.iter().chain(fencepost_store::desk::postgres::statements::ALL) {
        assert!(sql.text.starts_with(&format!("-- {}", sql.name)), "{}: no head", sql.name);
        let prepared = client.prepare_typed(sql.text, sql.types).await;
        let prepared = prepared.unwrap_or_else(|error| panic!("{}: {error:?}", sql.name));
        assert_eq!(prepared.params(), sql.types, "{}", sql.name);
    }
}

#[test]
fn every_file_is_a_statement() {
    use fencepost_store::desk::{postgres, sqlite};
    let names = |all: &[&fencepost_store::grant::postgres::statements::Sql]| {
        all.iter().map(|sql| sql.name.to_owned()).collect::<Vec<_>>()
    };
    let in_file = sqlite::statements::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    for (folder, mut names) in [
        ("grant/postgres", names(ALL)),
        ("desk/postgres", names(postgres::statements::ALL)),
        ("desk/sqlite", in_file),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder).join("sql");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        names.sort();
        assert_eq!(files, names);
    }
}

#[test]
fn every_statement_of_the_desk_prepares_against_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sqlite");
    let version = fencepost_store::store::sqlite::SCHEMA_VERSION;
    fencepost_store::store::sqlite::migrate_to(&path, version).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    for (name, text) in fencepost_store::desk::sqlite::statements::ALL {
        assert!(text.starts_with(&format!("-- {name}")), "{name}: no head");
        connection.prepare(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[tokio::test]
async fn statements_of_every_request_go_by_an_index() {
    let url = database().await;
    let client = connect(&url).await;
    client
        .batch_execute(
            "INSERT INTO fencepost.grant_consumptions (issuer, key_tenant, grant_id, operation_id, consumed_at,
                                                       retain_until)
             SELECT 'i', '', 'g' || n, NULL, now(), now() FROM generate_series(1, 20000) AS n;
             INSERT INTO fencepost.operations
             SELECT gen_random_uuid(), 'i', '', 'g' || n, 'n', 'c', '', decode(repeat('ab', 32), 'hex'), '{}',
                    'succeeded', NULL, 1, now(), now(), now(), now() FROM generate_series(1, 20000) AS n;
             ANALYZE fencepost.grant_consumptions, fencepost.operations",
        )
        .await
        .unwrap();
    for sql in ALL.iter().filter(|sql| sql.name != "grant_cleanup") {
        let rows = client.simple_query(&format!("EXPLAIN (GENERIC_PLAN) {}", sql.text)).await.unwrap();
        for message in rows {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                let line = row.get(0).unwrap_or_default();
                let scan = line.contains("Seq Scan on grant_consumptions")
                    || line.contains("Seq Scan on operations");
                assert!(!scan, "{}: {line}", sql.name);
            }
        }
    }
}

/// Records of use go by one statement of the cleanup alone: nothing that a caller or an operator asks
/// for removes or rewrites one.
#[test]
fn records_of_use_are_removed_by_the_cleanup_alone() {
    let mut removing = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sql") {
                let text = std::fs::read_to_string(&path).unwrap().to_lowercase();
                let words: Vec<&str> = text.split_whitespace().collect();
                let writes = words.windows(3).any(|words| {
                    let table = words[2].trim_start_matches("fencepost.").trim_end_matches(';');
                    let delete = words[..2] == ["delete", "from"] && table.starts_with("grant_consumptions");
                    let update = words[0] == "update"
                        && words[1].trim_start_matches("fencepost.").starts_with("grant_consumptions");
                    delete || update
                });
                if writes {
                    removing.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
                }
            }
        }
    }
    removing.sort();
    assert_eq!(removing, ["consumption_cleanup", "grant_cleanup"]);
}
