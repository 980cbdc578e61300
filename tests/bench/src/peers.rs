//! Side by side with in-application middlewares that do the same job in the same application, in the
//! same run: `fastapi-idempotency` on the same PostgreSQL, `idemkit` on Redis.
//!
//! All guard one handler of one uvicorn process. The middlewares run inside of it; Fencepost runs
//! before it, in Envoy and in the store service. The bare application is what all are compared
//! with. Redis writes its log each second, so it may forget the last one in a crash; PostgreSQL
//! answers when a claim is on the disk.

use crate::bed;
use crate::envoys;
use crate::http::{Client, Protocol, clients};
use crate::load::Load;
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
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What is installed, pinned: figures of another release are other figures.
const PACKAGES: [&str; 4] =
    ["fastapi-idempotency[tortoise]==0.1.1", "idemkit[redis]==1.0.2", "uvicorn==0.54.0", "asyncpg==0.32.0"];

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
    let guard = Some(("DATABASE", theirs.as_str()));
    let (guarded, guarded_addr) = application(folder, files.path(), "guarded", guard).await?;
    let service = bed::service(&server.try_create_database().await?, &[]).await?;
    let envoy = envoys::guarded(bare_addr, service.addr()).await?;
    let mut places =
        vec![("bare", bare_addr), ("fastapi_idempotency", guarded_addr), ("fencepost", envoy.proxy())];
    let mut on_redis = None;
    match redis(files.path()).await {
        Ok((redis, url)) => {
            let guard = Some(("REDIS", url.as_str()));
            let (process, addr) = application(folder, files.path(), "on_redis", guard).await?;
            places.push(("idemkit_redis", addr));
            on_redis = Some((process, redis));
        }
        Err(why) => summary.skip("peers/idemkit_redis", &format!("{why:#}")),
    }
    let numbers = Arc::new(AtomicU64::new(0));
    rates(summary, &places, rounds, slice, &numbers).await?;
    herds(summary, &places, rounds, &numbers).await?;
    drop((bare, guarded, on_redis));
    Ok(())
}

type Places<'a> = [(&'a str, SocketAddr)];

/// New keys and replays in closed loops, in turns.
async fn rates(
    summary: &mut Summary,
    places: &Places<'_>,
    rounds: usize,
    slice: Duration,
    numbers: &Arc<AtomicU64>,
) -> Result<()> {
    for (keys, what) in [(Keys::New, "new_key"), (Keys::One, "replay")] {
        for connections in [1, 16] {
            let mut found: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); places.len()];
            for round in 0..=rounds {
                for ((_, addr), (p50, rates)) in places.iter().zip(&mut found) {
                    let load = closed_loop(*addr, keys, connections, slice, numbers).await?;
                    if round > 0 {
                        p50.push(load.samples.ms(50.0));
                        rates.push(load.rate());
                    }
                }
            }
            let base = found.first().map(|(p50, rates)| (median(p50), median(rates)));
            let (base_p50, base_rate) = base.unwrap_or((f64::NAN, f64::NAN));
            for ((place, _), (p50, rates)) in places.iter().zip(&found) {
                let name = |figure: &str| format!("peers/{place}/{what}/{connections}/{figure}");
                let with = Some(("the bare application", base_p50));
                summary.add(&name("p50"), median(p50), "ms", with, Goal::None);
                let with = Some(("the bare application", base_rate));
                summary.add(&name("rate"), median(rates), "/s", with, Goal::None);
            }
        }
    }
    Ok(())
}

/// Callers of one new key at one instant.
async fn herds(
    summary: &mut Summary,
    places: &Places<'_>,
    rounds: usize,
    numbers: &Arc<AtomicU64>,
) -> Result<()> {
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
    guard: Option<(&str, &str)>,
) -> Result<(Process, SocketAddr)> {
    let addr = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new("python3");
    command.args(["-m", "uvicorn", "app:app", "--log-level", "warning", "--no-access-log", "--port"]);
    command.arg(addr.port().to_string()).current_dir(tools::repository().join("tests/bench/peers"));
    command.env("PYTHONPATH", packages.canonicalize()?).env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some((name, url)) = guard {
        command.env(name, url);
    }
    let log = logs.join(format!("{name}.log"));
    serving(command, log, name, addr).await
}

/// A Redis whose log reaches the disk each second.
async fn redis(folder: &Path) -> Result<(Process, String)> {
    let addr = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &addr.port().to_string(), "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--dir"]).arg(folder);
    let (process, addr) = serving(command, folder.join("redis.log"), "redis-server", addr).await?;
    Ok((process, format!("redis://{addr}/0")))
}

/// Starts a program and waits until it takes connections.
async fn serving(
    command: Command,
    log: PathBuf,
    name: &str,
    addr: SocketAddr,
) -> Result<(Process, SocketAddr)> {
    let start = Start { command, log, read_stdout: false, death_signal: 9 };
    let process = Process::start(start).with_context(|| format!("start {name}"))?.0;
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
