//! What replaces checking SQL at compile time: every statement fits the schema, the hot ones go by
//! the primary key, and every file is used.

use crate::bed::*;
use fencepost_store::store::postgres::statements::{ALL, Name, PLAN_ONCE, SESSION};
use fencepost_store::store::postgres::{SCHEMA_VERSION, migrate_to};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store").join(name)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn every_statement_prepares_against_the_schema__postgres() {
    let url = database().await;
    migrate_to(&url, SCHEMA_VERSION).await.unwrap();
    let client = connect(&url).await;
    for path in files(&folder("postgres/sql"), "sql") {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("-- "), "{}: no head", path.display());
        let several = text.lines().filter(|line| !line.starts_with("--")).any(|line| line.ends_with(';'));
        if several {
            client.batch_execute(&text).await.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
        } else {
            client.prepare(&text).await.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
        }
    }
    for sql in &ALL {
        let prepared = client.prepare_typed(sql.text, sql.types).await.unwrap();
        assert_eq!(prepared.params(), sql.types, "{}", sql.name);
    }
}

#[test]
fn every_statement_prepares_against_the_schema__sqlite() {
    let folder_of_file = tempfile::tempdir().unwrap();
    let path = folder_of_file.path().join("s.sqlite");
    fencepost_store::store::sqlite::migrate_to(&path, fencepost_store::store::sqlite::SCHEMA_VERSION)
        .unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    for path in files(&folder("sqlite/sql"), "sql") {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("-- "), "{}: no head", path.display());
        connection.prepare(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// On an empty table with the settings of our own sessions, as a plan is made that lives long; and
/// on a full one without them, as a pooler's session plans.
#[tokio::test]
async fn hot_statements_go_by_the_primary_key() {
    let url = database().await;
    migrate_to(&url, SCHEMA_VERSION).await.unwrap();
    let own = connect(&url).await;
    own.batch_execute(SESSION).await.unwrap();
    check_plans(&own).await;
    own.batch_execute("ANALYZE fencepost.entries").await.unwrap();
    check_plans(&own).await;
    own.batch_execute(
        "INSERT INTO fencepost.entries (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, until,
                                        cause, created_at, updated_at)
         SELECT 'test:' || n, 'released', decode(repeat('ab', 16), 'hex'), 1, '1-a', decode(repeat('ab', 32), 'hex'),
                decode(repeat('ab', 16), 'hex'), '{}', now() + n * interval '1 second', 'not_run', now(), now()
         FROM generate_series(1, 20000) AS n;
         ANALYZE fencepost.entries",
    )
    .await
    .unwrap();
    check_plans(&connect(&url).await).await;
}

async fn check_plans(client: &tokio_postgres::Client) {
    for sql in ALL.iter().filter(|sql| sql.hot) {
        let plan = client.simple_query(&format!("EXPLAIN (GENERIC_PLAN) {}", sql.text)).await.unwrap();
        let plan: Vec<String> = plan
            .into_iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .collect();
        let plan = plan.join("\n");
        assert!(plan.contains("entries_pkey"), "{}:\n{plan}", sql.name);
        assert!(!plan.contains("Seq Scan on entries"), "{}:\n{plan}", sql.name);
    }
}

/// A plan that needs what our sessions forbid is estimated at 1e10 and more (PostgreSQL before 18,
/// where jit then compiles every execution), or says so (since 18).
#[tokio::test]
async fn no_statement_needs_a_plan_that_our_sessions_forbid() {
    let url = database().await;
    migrate_to(&url, SCHEMA_VERSION).await.unwrap();
    let own = connect(&url).await;
    own.batch_execute(SESSION).await.unwrap();
    own.batch_execute(PLAN_ONCE).await.unwrap();
    for sql in &ALL {
        let types: Vec<&str> = sql.types.iter().map(tokio_postgres::types::Type::name).collect();
        let (types, values) = (types.join(", "), vec!["NULL"; sql.types.len()].join(", "));
        let (types, values) = match sql.types {
            [] => (String::new(), String::new()),
            [..] => (format!("({types})"), format!("({values})")),
        };
        let name = sql.name;
        own.batch_execute(&format!("PREPARE {name} {types} AS {}", sql.text)).await.unwrap();
        let rows = own.simple_query(&format!("EXPLAIN EXECUTE {name} {values}")).await.unwrap();
        let lines: Vec<&str> = rows
            .iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            })
            .collect();
        let plan = lines.join("\n");
        assert!(plan.contains("cost="), "{name}:\n{plan}");
        assert!(!plan.contains("Disabled"), "{name}:\n{plan}");
        for cost in plan.split("cost=").skip(1) {
            let total = cost.split_once("..").and_then(|(_, rest)| rest.split_once(' ')).unwrap().0;
            assert!(total.parse::<f64>().unwrap() < 1e9, "{name}:\n{plan}");
        }
    }
    let rows = own.simple_query("SHOW jit").await.unwrap();
    let off = |message: &tokio_postgres::SimpleQueryMessage| matches!(message, tokio_postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("off"));
    assert!(rows.iter().any(off), "jit is off");
}

/// Planning a claim costs more than making it, and PostgreSQL left alone plans each of them.
#[tokio::test]
async fn no_statement_is_planned_anew_for_each_execution() {
    let url = database().await;
    migrate_to(&url, SCHEMA_VERSION).await.unwrap();
    let own = connect(&url).await;
    own.batch_execute(SESSION).await.unwrap();
    own.batch_execute(PLAN_ONCE).await.unwrap();
    let sql = Name::ClaimAcquire.sql();
    let claim = own.prepare_typed(sql.text, sql.types).await.unwrap();
    let bytes = |byte: u8, len: usize| vec![vec![byte; len]];
    for number in 0..8_u8 {
        let key = vec![format!("test:{number}")];
        own.query(
            &claim,
            &[
                &key,
                &bytes(number, 16),
                &vec!["1-a"],
                &bytes(1, 32),
                &bytes(2, 16),
                &vec!["hold"],
                &vec![30_000_i32],
                &vec![60_000_i32],
                &vec![86_400_000_i64],
                &0_i64,
                &1_000_i32,
                &None::<std::time::SystemTime>,
            ],
        )
        .await
        .unwrap();
    }
    let plans = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '-- claim_acquire%'";
    let row = own.query_one(plans, &[]).await.unwrap();
    let plans = (row.get::<_, i64>("generic_plans"), row.get::<_, i64>("custom_plans"));
    assert_eq!(plans, (8, 0), "generic and custom");
}

#[test]
fn every_statement_is_used_once() {
    for store in ["postgres", "sqlite"] {
        let sources: String = files(&folder(store), "rs")
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect::<Vec<_>>()
            .concat();
        for path in files(&folder(store), "sql") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let place = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
            let included = sources.matches(&format!("include_str!(\"{place}/{name}.sql\")")).count();
            let listed = sources.matches(&format!("sql!(\n        \"{name}\"")).count()
                + sources.matches(&format!("sql!(\"{name}\"")).count();
            assert_eq!(included + listed, 1, "{}", path.display());
        }
    }
}

#[test]
fn no_statement_hides_in_the_code() {
    for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in ["INSERT INTO", "DELETE FROM", "FOR UPDATE", "ON CONFLICT", "SELECT "] {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            assert!(!code.into_iter().any(|line| line.contains(word)), "{}: {word}", path.display());
        }
    }
}
