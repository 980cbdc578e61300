//! Side by side with an in-application middleware that does the same job: `fastapi-idempotency` in
//! the same application, on the same PostgreSQL, in the same run.
//!
//! Both guard one handler of one uvicorn process. The middleware runs inside of it; Fencepost runs
//! before it, in Envoy and in the store service. The bare application is what both are compared
//! with.

use crate::bed;
use crate::http::{Client, Protocol, clients};
use crate::load::Load;
use crate::proxy;
use crate::samples::{Samples, median};
use crate::summary::{Goal, Summary};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fencepost_rig::postgres::Postgres;
use fencepost_rig::process::{Process, Start};
use fencepost_rig::scratch::Scratch;
use fencepost_rig::tools;
use http_body_util::Full;
use hyper::Request;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What is installed, pinned: figures of another release are other figures.
const PACKAGES: [&str; 3] = ["fastapi-idempotency[tortoise]==0.1.1", "uvicorn==0.54.0", "asyncpg==0.32.0"];

/// Callers of one key at one instant.
const HERD: usize = 64;

/// Keys that requests use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    New,
    One,
}

/// Measures everything.
pub async fn run(
    summary: &mut Summary,
    server: &Postgres,
    folder: &Path,
    rounds: usize,
    slice: Duration,
) -> Result<()> {
    if let Err(why) = install(folder) {
        summary.skip("peers/fastapi_idempotency", &format!("{why:#}"));
        return Ok(());
    }
    let files = Scratch::new("bench-peers")?;
    let theirs = server.try_create_database().await?.replace("postgres://", "asyncpg://");
    let (bare, bare_addr) = application(folder, files.path(), "bare", None).await?;
    let (guarded, guarded_addr) = application(folder, files.path(), "guarded", Some(&theirs)).await?;
    let service = bed::service(&server.try_create_database().await?, &[]).await?;
    let envoy = proxy::guarded(bare_addr, service.addr()).await?;
    let places = [("bare", bare_addr), ("fastapi_idempotency", guarded_addr), ("fencepost", envoy.proxy())];
    let numbers = Arc::new(AtomicU64::new(0));
    for (keys, what) in [(Keys::New, "new_key"), (Keys::One, "replay")] {
        for connections in [1, 16] {
            let mut found: [(Vec<f64>, Vec<f64>); 3] = Default::default();
            for round in 0..=rounds {
                for ((_, addr), (p50, rates)) in places.iter().zip(&mut found) {
                    let load = closed_loop(*addr, keys, connections, slice, &numbers).await?;
                    if round > 0 {
                        p50.push(load.samples.ms(50.0));
                        rates.push(load.rate());
                    }
                }
            }
            let base = (median(&found[0].0), median(&found[0].1));
            for ((place, _), (p50, rates)) in places.iter().zip(&found) {
                let name = |figure: &str| format!("peers/{place}/{what}/{connections}/{figure}");
                let with = Some(("the bare application", base.0));
                summary.add(&name("p50"), median(p50), "ms", with, Goal::None);
                let with = Some(("the bare application", base.1));
                summary.add(&name("rate"), median(rates), "/s", with, Goal::None);
            }
        }
    }
    for (place, addr) in places.iter().skip(1) {
        let (mut p99, mut failed) = (Vec::new(), 0.0);
        for _ in 0..rounds {
            let key = format!("herd-{}", numbers.fetch_add(1, Ordering::Relaxed));
            let (samples, refused) = herd(*addr, &key).await?;
            p99.push(samples.ms(99.0));
            failed += refused as f64 / rounds as f64;
        }
        summary.add(&format!("peers/{place}/herd_{HERD}/p99"), median(&p99), "ms", None, Goal::None);
        let name = format!("peers/{place}/herd_{HERD}/not_answered_with_the_result");
        summary.add(&name, failed, "", None, Goal::None);
    }
    drop((bare, guarded));
    Ok(())
}

/// Into a folder of its own, once.
fn install(folder: &Path) -> Result<()> {
    let stamp = folder.join("installed");
    let wanted = PACKAGES.join(" ");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target"])
        .arg(folder)
        .args(PACKAGES)
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .output()
        .context("no python3")?;
    if !output.status.success() {
        bail!("pip could not install it: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    std::fs::write(stamp, wanted)?;
    Ok(())
}

/// One uvicorn process, serving.
async fn application(
    packages: &Path,
    logs: &Path,
    name: &str,
    database: Option<&str>,
) -> Result<(Process, SocketAddr)> {
    let addr = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new("python3");
    command.args(["-m", "uvicorn", "app:app", "--log-level", "warning", "--no-access-log", "--port"]);
    command.arg(addr.port().to_string()).current_dir(tools::repository().join("tests/bench/peers"));
    command.env("PYTHONPATH", packages.canonicalize()?).env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(database) = database {
        command.env("DATABASE", database);
    }
    let log = logs.join(format!("{name}.log"));
    let process = Process::start(Start { command, log, read_stdout: false, death_signal: 9 })?.0;
    let deadline = Instant::now() + Duration::from_secs(20);
    while tokio::net::TcpStream::connect(addr).await.is_err() {
        if process.exited().is_some() || Instant::now() > deadline {
            bail!("{name} does not serve\n{}", process.log_tail());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((process, addr))
}

async fn closed_loop(
    addr: SocketAddr,
    keys: Keys,
    connections: usize,
    slice: Duration,
    numbers: &Arc<AtomicU64>,
) -> Result<Load> {
    let mut senders = clients(addr, Protocol::Http1, connections, connections).await?;
    let shared = format!("one-{}", numbers.fetch_add(1, Ordering::Relaxed));
    if let Some(first) = senders.first_mut() {
        pay(first, &shared).await?;
    }
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for mut sender in senders {
        let (shared, numbers) = (shared.clone(), Arc::clone(numbers));
        tasks.spawn(async move {
            let mut samples = Samples::default();
            while start.elapsed() < slice {
                let key = match keys {
                    Keys::One => shared.clone(),
                    Keys::New => format!("key-{}", numbers.fetch_add(1, Ordering::Relaxed)),
                };
                let sent = Instant::now();
                let status = pay(&mut sender, &key).await?;
                samples.add(sent.elapsed());
                if status != 201 {
                    bail!("{status}");
                }
            }
            anyhow::Ok(samples)
        });
    }
    let mut samples = Samples::default();
    while let Some(done) = tasks.join_next().await {
        samples.merge(done??);
    }
    Ok(Load { samples, elapsed: start.elapsed() })
}

/// Callers of one new key at once: how long they took, and how many were not told the result.
async fn herd(addr: SocketAddr, key: &str) -> Result<(Samples, usize)> {
    let mut tasks = JoinSet::new();
    let senders = clients(addr, Protocol::Http1, HERD, HERD).await?;
    let start = Instant::now();
    for mut sender in senders {
        let key = key.to_owned();
        tasks.spawn(async move { anyhow::Ok((pay(&mut sender, &key).await?, start.elapsed())) });
    }
    let (mut samples, mut failed) = (Samples::default(), 0);
    while let Some(done) = tasks.join_next().await {
        let (status, took) = done??;
        samples.add(took);
        failed += usize::from(status != 201);
    }
    Ok((samples, failed))
}

async fn pay(sender: &mut Client, key: &str) -> Result<u16> {
    let request = Request::post("/pay")
        .header("host", "bench.example")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Full::new(Bytes::from(crate::documents::canonical(1 << 10))))?;
    Ok(sender.send(request).await?.status.as_u16())
}
