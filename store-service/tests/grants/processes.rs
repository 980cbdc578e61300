//! Separate service processes on one database: replies that are lost, processes and servers that
//! die, a restore from a backup.

use crate::cutting::Cutting;
use crate::http::{Served, admit_call, serve, status_call, told};
use crate::support::*;
use fencepost_protocol::grants::OperationId;
use fencepost_rig::client::Call;
use fencepost_rig::postgres::{Options as PgOptions, Postgres};
use fencepost_rig::service::{Options, Service};
use futures_util::future::join_all;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

async fn admit(served: &Served, token: &str, operation: &OperationId) -> (u16, String, String) {
    told(&admit_call(token, operation.as_str()).send(served.service.addr()).await.unwrap())
}

fn is(status: u16, code: &str) -> (u16, String, String) {
    (status, code.into(), String::new())
}

/// Both incidents of the in-memory store: another instance, and a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_service_processes_admit_a_grant_once_before_and_after_restarts() {
    let url = database().await;
    let (a, b) = (serve(&url, None, false).await, serve(&url, None, false).await);
    for _ in 0..20 {
        let token = a.signer.sign(&claims(&fresh_id(), 900));
        let (x, y) = (fresh_operation(), fresh_operation());
        let (x, y) = tokio::join!(admit(&a, &token, &x), admit(&b, &token, &y));
        let mut found = [x, y];
        found.sort();
        assert_eq!(found, [is(200, ""), is(403, "grant_not_available")]);
    }
    let token = a.signer.sign(&claims(&fresh_id(), 900));
    let herd = (0..128).map(|turn| {
        let (served, token) = (if turn % 2 == 0 { &a } else { &b }, &token);
        async move { admit(served, token, &fresh_operation()).await }
    });
    let found = join_all(herd).await;
    assert_eq!(found.iter().filter(|answer| answer.0 == 200).count(), 1);
    assert_eq!(found.iter().filter(|answer| **answer == is(403, "grant_not_available")).count(), 127);
    a.service.stop().await.unwrap();
    a.service.start_again().await.unwrap();
    assert_eq!(admit(&a, &token, &fresh_operation()).await, is(403, "grant_not_available"));
    b.service.kill().await.unwrap();
    b.service.start_again().await.unwrap();
    assert_eq!(admit(&b, &token, &fresh_operation()).await, is(403, "grant_not_available"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admission_whose_acknowledgement_was_lost_is_found_and_not_repeated() {
    let url = database().await;
    let port = Postgres::shared().await.port();
    let proxy = Cutting::before(([127, 0, 0, 1], port).into()).await;
    let through = url.replace(&format!(":{port}/"), &format!(":{}/", proxy.addr.port()));
    let signer = Signer::new(1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("issuers.json");
    let timings = json!({"timings": {"admission_bound": "3s"}});
    std::fs::write(&file, config(&signer, json!({"leeway": "0s"}), timings).to_string()).unwrap();
    let options = Options::on(&url).arguments(&[
        "--issuers",
        file.to_str().unwrap(),
        "--admission-store",
        &through,
        "--grant-connections",
        "1",
    ]);
    let service = Service::start(options).await.unwrap();
    let to = service.addr();
    // The look at the bound goes the same way, and its reply must not be the one that is cut.
    until("the bound is verified", async || {
        Call::get("/readyz").send(to).await.unwrap().json()["grants"]["cleanup"] == "on"
    })
    .await;
    // The connection is there and its statement prepared: what comes next is the admission alone.
    let warm = admit_call(&signer.sign(&claims(&fresh_id(), 900)), fresh_operation().as_str());
    assert_eq!(warm.send(to).await.unwrap().status, 200);

    let expires = now() + 4;
    let mut own = claims(&fresh_id(), 0);
    merge(&mut own, json!({"iat": expires - 60, "exp": expires}));
    let (token, operation) = (signer.sign(&own), fresh_operation());
    proxy.arm();
    let lost = admit_call(&token, operation.as_str()).send(to).await.unwrap();
    assert_eq!(told(&lost), is(503, "store_unavailable"));
    assert!(lost.header("retry-after").is_some());
    assert_eq!(proxy.cut(), 1);
    let client = connect(&url).await;
    let committed = format!("SELECT count(*) FROM fencepost.operations WHERE operation_id = '{operation}'");
    assert_eq!(count(&client, &committed).await, 1, "the reply was cut after the commit");

    let retry = admit_call(&token, operation.as_str()).send(to).await.unwrap();
    assert_eq!(told(&retry), is(409, "already_admitted"));
    assert_eq!(retry.json()["operation"]["status"], "admitted");
    let other = admit_call(&token, fresh_operation().as_str()).send(to).await.unwrap();
    assert_eq!(told(&other), is(403, "grant_not_available"));
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.grant_consumptions").await, 2);
    until("the grant expires", async || now() > expires).await;
    let late = admit_call(&token, operation.as_str()).send(to).await.unwrap();
    assert_eq!(told(&late), is(403, "grant_expired"));
    let status = status_call(operation.as_str()).send(to).await.unwrap();
    assert_eq!((status.status, status.json()["status"].as_str()), (200, Some("admitted")));
}

#[tokio::test]
async fn a_process_that_dies_right_after_admission_leaves_it_to_recovery() {
    let url = database().await;
    let (a, b) = (serve(&url, None, false).await, serve(&url, None, false).await);
    let (token, operation) = (a.signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
    assert_eq!(admit(&a, &token, &operation).await.0, 200);
    a.service.kill().await.unwrap();
    // The grant is spent, and a retry executes nothing.
    assert_eq!(admit(&b, &token, &operation).await, is(409, "already_admitted"));
    assert_eq!(admit(&b, &token, &fresh_operation()).await, is(403, "grant_not_available"));
    let call = async |path: &str, body| {
        Call::post(&format!("/v1/operations/{operation}/{path}")).json(&body).send(b.service.addr()).await
    };
    let early = call("take-over", json!({"owner_version": 1})).await.unwrap();
    assert_eq!(told(&early).2, "lease_live");
    connect(&url)
        .await
        .batch_execute("UPDATE fencepost.operations SET lease_until = now() - interval '1 second'")
        .await
        .unwrap();
    let taken = call("take-over", json!({"owner_version": 1})).await.unwrap();
    assert_eq!((taken.status, taken.json()["owner_version"].as_i64()), (200, Some(2)));
    let record = json!({"owner_version": 2, "outcome": "succeeded", "reference": "cr_1"});
    assert_eq!(call("record", record).await.unwrap().status, 200);
    assert_eq!(admit(&b, &token, &operation).await, is(409, "already_admitted"));
}

#[tokio::test]
async fn an_unreachable_or_silent_store_admits_nobody_and_says_so_in_time() {
    let server = Postgres::start(PgOptions::default()).await.unwrap();
    let url = server.create_database().await;
    let timings = json!({"timings": {"store_call_timeout": "1s"}});
    let signer = Signer::new(1);
    let served = serve(&url, Some(config(&signer, json!({}), timings)), false).await;
    let (token, operation) = (signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
    server.freeze();
    let start = Instant::now();
    assert_eq!(admit(&served, &token, &operation).await, is(503, "store_unavailable"));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    server.thaw();
    server.stop().await.unwrap();
    assert_eq!(admit(&served, &token, &operation).await, is(503, "store_unavailable"));
    server.start_again().await.unwrap();
    // It may have been admitted while nobody listened; then the retry is told so.
    let mut found = admit(&served, &token, &operation).await;
    let patience = Instant::now() + Duration::from_secs(20);
    while found.0 == 503 && Instant::now() < patience {
        found = admit(&served, &token, &operation).await;
    }
    assert!(found.0 == 200 || found == is(409, "already_admitted"), "{found:?}");
    assert_eq!(admit(&served, &token, &fresh_operation()).await, is(403, "grant_not_available"));
    // Power failure.
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    let mut found = admit(&served, &token, &fresh_operation()).await;
    while found.0 == 503 && Instant::now() < patience + Duration::from_secs(20) {
        found = admit(&served, &token, &fresh_operation()).await;
    }
    assert_eq!(found, is(403, "grant_not_available"));
}

#[tokio::test]
async fn a_caller_that_hangs_up_during_an_admission_finds_it_again() {
    let url = database().await;
    let served = serve(&url, None, false).await;
    let gate = connect(&url).await;
    gate.batch_execute("BEGIN; LOCK TABLE fencepost.operations IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
    let (token, operation) = (served.signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
    let call = admit_call(&token, operation.as_str()).within(Duration::from_millis(500));
    assert!(call.send(served.service.addr()).await.is_err(), "the caller was to give up");
    gate.batch_execute("ROLLBACK").await.unwrap();
    let client = connect(&url).await;
    until("the admission commits", async || {
        count(&client, "SELECT count(*) FROM fencepost.operations").await == 1
    })
    .await;
    assert_eq!(admit(&served, &token, &operation).await, is(409, "already_admitted"));
    assert_eq!(admit(&served, &token, &fresh_operation()).await, is(403, "grant_not_available"));
}

/// A backup made after the admission has it; a grant used before it stays used after the restore.
#[tokio::test]
async fn an_admission_is_still_there_after_a_restore_from_a_backup() {
    let server = Postgres::start(PgOptions::default()).await.unwrap();
    let url = server.create_database().await;
    let served = serve(&url, None, false).await;
    let (token, operation) = (served.signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
    assert_eq!(admit(&served, &token, &operation).await.0, 200);

    let place = tempfile::Builder::new().prefix("fencepost-restore-").tempdir().unwrap();
    let data = place.path().join("data");
    std::os::unix::fs::chown(place.path(), Some(OTHER), Some(OTHER)).ok();
    let port = server.port().to_string();
    let mut backup = as_postgres(&server.bin().join("pg_basebackup"));
    backup.arg("-D").arg(&data).args([
        "-h",
        "127.0.0.1",
        "-p",
        &port,
        "-U",
        "postgres",
        "-X",
        "fetch",
        "-c",
        "fast",
    ]);
    let made = tokio::task::spawn_blocking(move || backup.output().unwrap()).await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    served.service.stop().await.unwrap();
    server.stop().await.unwrap();

    let port = server.port();
    let mut restored = as_postgres(&server.bin().join("postgres"));
    restored.arg("-D").arg(&data).args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}")]);
    restored.arg("-c").arg(format!("unix_socket_directories={}", place.path().display()));
    restored.args(["-c", "dynamic_shared_memory_type=mmap", "-c", "shared_buffers=16MB"]);
    let start = fencepost_rig::process::Start {
        command: restored,
        log: std::env::temp_dir().join(format!("fencepost-restore-{port}.log")),
        read_stdout: false,
        death_signal: libc_sigquit(),
    };
    let log = start.log.clone();
    let (running, _) = fencepost_rig::process::Process::start(start).unwrap();
    until("the restored server answers", async || {
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_ok()
    })
    .await;
    served.service.start_again().await.unwrap();
    assert_eq!(admit(&served, &token, &fresh_operation()).await, is(403, "grant_not_available"));
    assert_eq!(admit(&served, &token, &operation).await, is(409, "already_admitted"));
    served.service.stop().await.unwrap();
    running.stop(libc_sigquit(), Duration::from_secs(10)).await.unwrap();
    std::fs::remove_file(log).ok();
}

/// The user `nobody`: PostgreSQL does not run as root.
const OTHER: u32 = 65_534;

/// SIGQUIT: the server's immediate shutdown.
fn libc_sigquit() -> i32 {
    3
}

fn as_postgres(program: &Path) -> Command {
    let mut command = Command::new(program);
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if root {
        command.uid(OTHER).gid(OTHER);
    }
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin").current_dir("/");
    command
}
