//! Starting: the program itself, alone and with others, on what it finds.

use crate::bed::*;
use fencepost_store::store::{Clock, OpenError, postgres, sqlite};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The program with these arguments.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost-store"));
    command.args(arguments).kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the service; its ready line, or what it said instead.
pub async fn serve(url: &str) -> Result<(Child, String), Output> {
    let mut child = program(&["serve", "--listen", "127.0.0.1:0", "--store", url]).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let read = tokio::time::timeout(Duration::from_secs(60), out.read_line(&mut line)).await;
    read.expect("neither ready nor ended").unwrap();
    if line.is_empty() { Err(child.wait_with_output().await.unwrap()) } else { Ok((child, line)) }
}

/// A field of a ready line.
pub fn field<'a>(line: &'a str, name: &str) -> &'a str {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap()
}

async fn eight(url: &str) -> Vec<Result<(Child, String), Output>> {
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let url = url.to_owned();
            tokio::spawn(async move { serve(&url).await })
        })
        .collect();
    let mut started = Vec::new();
    for task in tasks {
        started.push(task.await.unwrap());
    }
    started
}

/// All eight serve, and agree on one identity.
async fn eight_agree(url: &str) -> String {
    let started: Vec<_> = eight(url).await.into_iter().map(|started| started.unwrap().1).collect();
    let id = field(&started[0], "store_id=").to_owned();
    assert!(started.iter().all(|line| field(line, "store_id=") == id), "{started:?}");
    assert!(started.iter().all(|line| field(line, "store=") == "postgres"));
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_start_on_an_empty_database__postgres() {
    for _ in 0..5 {
        eight_agree(&database().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_start_on_an_older_schema__postgres() {
    for _ in 0..5 {
        let url = database().await;
        postgres::migrate_to(&url, 1).await.unwrap();
        let client = connect(&url).await;
        let row = client.query_one("SELECT store_id FROM fencepost.meta", &[]).await.unwrap();
        let id: Vec<u8> = row.get(0);
        assert_eq!(eight_agree(&url).await, hex::encode(id));
    }
}

/// A SQLite file belongs to one of them; the others say so.
async fn one_of_eight(url: &str) {
    let (ready, refused): (Vec<_>, Vec<_>) = eight(url).await.into_iter().partition(Result::is_ok);
    assert_eq!(ready.len(), 1);
    for output in refused {
        let output = output.unwrap_err();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("in use by another process"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_eight_instances_starts_on_an_empty_file__sqlite() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        one_of_eight(&format!("sqlite:{}", folder.path().join("s.sqlite").display())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_eight_instances_starts_on_an_older_schema__sqlite() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sqlite");
        let id = sqlite::migrate_to(&path, 1).unwrap();
        one_of_eight(&format!("sqlite:{}", path.display())).await;
        let (_child, line) = serve(&format!("sqlite:{}", path.display())).await.unwrap();
        assert_eq!(field(&line, "store_id="), id.to_hex());
    }
}

#[tokio::test]
async fn sigterm_ends_the_service_in_order_and_the_next_one_finds_its_claims() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("s.sqlite").display());
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (mut child, line) = serve(&url).await.unwrap();
        ids.push(field(&line, "store_id=").to_owned());
        let pid = child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        let status = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
    }
    assert_eq!(ids[0], ids[1]);
}

/// What the program says, on one line, and its exit code.
async fn refused(arguments: &[&str]) -> String {
    let output = program(arguments).output().await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let line = text.lines().last().unwrap().to_owned();
    assert!(line.starts_with("fencepost-store: "), "{text}");
    line
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let sqlite = format!("sqlite:{}", file("s.sqlite"));
    let line = refused(&["serve", "--listen", "0.0.0.0:0", "--store", &sqlite]).await;
    assert!(line.contains("--listen") && line.contains("--token-file"), "{line}");
    std::fs::write(file("tokens"), "[{}]").unwrap();
    let line = refused(&["serve", "--store", &sqlite, "--token-file", &file("tokens")]).await;
    assert!(line.contains("--token-file") && line.contains("token_sha256"), "{line}");
    let digest = "ab".repeat(32);
    let tokens =
        format!(r#"[{{"token_sha256": "{digest}", "roles": ["filter"], "key_prefixes": ["prod"]}}]"#);
    std::fs::write(file("tokens"), tokens).unwrap();
    let arguments = ["serve", "--listen", "0.0.0.0:0", "--store", &sqlite, "--token-file", &file("tokens")];
    let line = refused(&arguments).await;
    assert!(line.contains("--single-instance"), "{line}");
    let arguments = ["serve", "--listen", "0.0.0.0:0", "--store", "memory:", "--token-file", &file("tokens")];
    let line = refused(&arguments).await;
    assert!(line.contains("--single-instance") && line.contains("memory"), "{line}");
    for store in [&sqlite, "postgres://127.0.0.1:1/x"] {
        let line = refused(&["serve", "--store", store, "--listen-store", "memory:"]).await;
        assert!(line.contains("--listen-store") && line.contains("postgres://"), "{line}");
    }
    let (tokens, cert) = (file("tokens"), file("cert"));
    let tls = ["serve", "--store", &sqlite, "--token-file", &tokens, "--tls-cert", &cert];
    let (key, ca) = (file("key"), file("ca"));
    let with_key = [&tls[..], &["--tls-key", &key]].concat();
    let line = refused(&with_key).await;
    assert!(line.contains("--tls-cert") && line.contains("readable PEM"), "{line}");
    let line = refused(&[&with_key[..], &["--tls-client-ca", &ca]].concat()).await;
    assert!(line.contains("--tls-client-ca") && line.contains("client_san"), "{line}");
    std::fs::write(file("peers"), r#"[{"client_san": "dns:a", "roles": ["operator"]}]"#).unwrap();
    let line = refused(&["serve", "--store", &sqlite, "--token-file", &file("peers")]).await;
    assert!(line.contains("--tls-client-ca") && line.contains("client_san"), "{line}");
    assert_eq!(program(&tls).output().await.unwrap().status.code(), Some(2), "a certificate without its key");
    let nowhere = format!("sqlite:{}", file("no/such/folder/s.sqlite"));
    assert!(refused(&["serve", "--store", &nowhere]).await.contains("directory that exists"));
    std::fs::write(
        file("text"),
        "this is no database, only a text that is long enough to be read ".repeat(20),
    )
    .unwrap();
    let text = format!("sqlite:{}", file("text"));
    assert!(refused(&["serve", "--store", &text]).await.contains("not a SQLite database"));
    let line = refused(&["serve", "--store", &sqlite, "--no-migrate"]).await;
    assert!(line.contains("fencepost-store migrate"), "{line}");
    let line = refused(&["serve", "--store", "postgres://me:secret@127.0.0.1:1/x"]).await;
    assert!(line.contains("--store postgres://..") && !line.contains("secret"), "{line}");
    let output = program(&["serve", "--store", "redis://:secret@x"]).output().await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("sqlite:PATH"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_without_an_address_past_it_is_said_at_start() {
    let pooler =
        fencepost_rig::pgbouncer::PgBouncer::start(fencepost_rig::postgres::Postgres::shared().await, 5)
            .await
            .unwrap();
    let url = pooler.url(&database().await);
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        &url,
        "--pg-unnamed-statements",
        "--claim-connections",
        "2",
    ];
    let mut child = program(&arguments).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = async {
        while let Some(line) = log.next_line().await.unwrap() {
            if line.contains("transaction-mode pooler") && line.contains("--listen-store") {
                return;
            }
        }
        panic!("ended without a word");
    };
    tokio::time::timeout(Duration::from_secs(60), said).await.expect("nothing was said");
}

#[tokio::test]
async fn newer_schema_is_refused() {
    let url = database().await;
    postgres::migrate_to(&url, postgres::SCHEMA_VERSION).await.unwrap();
    let client = connect(&url).await;
    client.execute("INSERT INTO fencepost.migrations (version) VALUES (99)", &[]).await.unwrap();
    let open = postgres::Postgres::open(&url, Clock::Real, true, postgres::Options::default()).await;
    let Err(OpenError::Unusable(reason)) = open else { panic!("opened a newer schema") };
    assert!(reason.contains("version 99"), "{reason}");
}
