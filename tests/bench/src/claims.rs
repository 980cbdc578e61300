//! Claims over HTTP, on PostgreSQL, against the article's statement in pgbench.

use crate::bed::{self, ARTICLE_TABLE};
use crate::frames;
use crate::http::{Client, Protocol, clients};
use crate::load;
use crate::random::Random;
use crate::samples::{Samples, median};
use crate::summary::{Goal, Summary};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::ClaimReply;
use fencepost_protocol::paths;
use fencepost_rig::postgres::Postgres;
use http_body_util::Full;
use hyper::Request;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

const WORKERS: usize = 16;
const KEYS: u64 = 2_500;
const CLAIMS: usize = 10_000;
const CALLERS: usize = 1_280;

/// How often each part is repeated.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Rounds of which the median counts.
    pub rounds: usize,
    /// Seconds of each run of pgbench.
    pub seconds: u32,
}

/// Measures everything.
pub async fn run(summary: &mut Summary, server: &Postgres, effort: Effort) -> Result<()> {
    let url = server.try_create_database().await?;
    let service = bed::service(&url, &[]).await?;
    let mut random = Random::new(2);
    for protocol in [Protocol::H2c, Protocol::Http1] {
        mixed(summary, server, service.addr(), protocol, &mut random, effort).await?;
    }
    throughput(summary, server, service.addr(), &mut random, effort).await?;
    drop(service);
    // Another database: the sweeper writes to the claims that the parts before left behind.
    let url = server.try_create_database().await?;
    let service = bed::service(&url, &[]).await?;
    let database = bed::connect(&url).await?;
    for protocol in [Protocol::H2c, Protocol::Http1] {
        herd(summary, service.addr(), &database, protocol, &mut random, effort).await?;
    }
    Ok(())
}

/// Frames over a set of keys, each key asked `times` times, in any order.
fn dealt(set: u64, keys: u64, times: usize, random: &mut Random) -> Result<Vec<Bytes>> {
    let mut frames = Vec::new();
    for number in 0..keys {
        let key = frames::key(set, number)?;
        for _ in 0..times {
            frames.push(frames::claim(&key, random, 0)?.1);
        }
    }
    random.shuffle(&mut frames);
    Ok(frames)
}

async fn mixed(
    summary: &mut Summary,
    server: &Postgres,
    addr: SocketAddr,
    protocol: Protocol,
    random: &mut Random,
    effort: Effort,
) -> Result<()> {
    let mut workers = clients(addr, protocol, WORKERS, 2).await?;
    let article = server.try_create_database().await?;
    bed::connect(&article).await?.batch_execute(ARTICLE_TABLE).await?;
    let (mut p50, mut p99, mut pgbench) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=effort.rounds {
        let frames = dealt(random.next(), KEYS, CLAIMS / KEYS as usize, random)?;
        let load = load::frames(&mut workers, paths::CLAIMS, frames).await?;
        if round > 0 {
            p50.push(load.samples.ms(50.0));
            p99.push(load.samples.ms(99.0));
            // Sixteen clients one after the other: their average is their number over the rate.
            let rate = bed::pgbench(server, &article, 1, KEYS, 1).await?;
            pgbench.push(WORKERS as f64 * 1e3 / rate);
        }
    }
    let statement = ("the article's statement alone, average", median(&pgbench));
    let name = |what: &str| format!("claims/mixed_16_workers/{}/{what}", protocol.name());
    summary.add(&name("p50"), median(&p50), "ms", Some(statement), Goal::AtMost(1.0));
    summary.add(&name("p99"), median(&p99), "ms", Some(statement), Goal::AtMost(5.0));
    Ok(())
}

/// Both sides in turn, in the same minutes: the median of the ratios counts.
async fn throughput(
    summary: &mut Summary,
    server: &Postgres,
    addr: SocketAddr,
    random: &mut Random,
    effort: Effort,
) -> Result<()> {
    let article = server.try_create_database().await?;
    bed::connect(&article).await?.batch_execute(ARTICLE_TABLE).await?;
    for (what, keys, goal) in [("new_keys", None, 1.0), ("2500_keys", Some(KEYS), 1.5)] {
        let mut theirs = Vec::new();
        let mut ours: Vec<(usize, Vec<f64>)> = [16, 64, 256].map(|callers| (callers, Vec::new())).to_vec();
        let service = *bed::children("fencepost-store")?.last().context("no service")?;
        let mut cpu = Vec::new();
        for round in 0..effort.rounds {
            let (first, span) = match keys {
                Some(keys) => (1, keys),
                None => (1 << 40, 1 << 50),
            };
            theirs.push(bed::pgbench(server, &article, first, span, effort.seconds).await?);
            for (callers, rates) in &mut ours {
                let mut workers = clients(addr, Protocol::H2c, *callers, 2).await?;
                let count = 10_000 * u64::from(effort.seconds);
                let set = random.next();
                let frames = match keys {
                    Some(keys) => {
                        let warm = dealt(set, keys, 1, random)?;
                        load::frames(&mut workers, paths::CLAIMS, warm).await?;
                        dealt(set, keys, (count / keys) as usize, random)?
                    }
                    None => dealt(set, count, 1, random)?,
                };
                let before = bed::cpu_us(service)?;
                let load = load::frames(&mut workers, paths::CLAIMS, frames).await?;
                cpu.push((bed::cpu_us(service)? - before) / load.samples.len() as f64);
                // The first round's only warms up, where there are others.
                if round > 0 || effort.rounds == 1 {
                    rates.push(load.rate());
                }
            }
        }
        let pgbench = median(&theirs);
        summary.add(&format!("claims/{what}/pgbench_16"), pgbench, "/s", None, Goal::None);
        summary.add(&format!("claims/{what}/service_cpu"), median(&cpu), "us", None, Goal::None);
        let best = ours.iter().map(|(_, rates)| median(rates)).fold(0.0, f64::max);
        for (callers, rates) in &ours {
            let rate = median(rates);
            // Goals are for capacity; a closed loop of 16 measures latency as well.
            let goal = if rate >= best { Goal::RatioAtLeast(goal) } else { Goal::None };
            let name = format!("claims/{what}/service_{callers}_callers");
            summary.add(&name, rate, "/s", Some(("pgbench, 16 clients", pgbench)), goal);
        }
    }
    Ok(())
}

/// All callers of one key, released at one instant.
async fn herd(
    summary: &mut Summary,
    addr: SocketAddr,
    database: &tokio_postgres::Client,
    protocol: Protocol,
    random: &mut Random,
    effort: Effort,
) -> Result<()> {
    let mut callers = clients(addr, protocol, CALLERS, 2).await?;
    database.batch_execute("CREATE EXTENSION IF NOT EXISTS pgstattuple").await?;
    bed::tidy(database).await?;
    let dead = "SELECT dead_tuple_count FROM pgstattuple('fencepost.entries')";
    let before = bed::number(database, dead).await?;
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    let (mut http_p50, mut http_p99) = (Vec::new(), Vec::new());
    for round in 0..=effort.rounds {
        let http = one_herd(&mut callers, None, random).await?;
        let key = frames::key(random.next(), 1)?;
        let samples = one_herd(&mut callers, Some(&key), random).await?;
        if round > 0 {
            p50.push(samples.ms(50.0));
            p99.push(samples.ms(99.0));
            http_p50.push(http.ms(50.0));
            http_p99.push(http.ms(99.0));
        }
    }
    let http = |values: &[f64]| Some(("the same herd asking /healthz", median(values)));
    let left = (bed::number(database, dead).await? - before) / (effort.rounds + 1) as f64;
    let name = |what: &str| format!("claims/herd_1280/{}/{what}", protocol.name());
    summary.add(&name("p50"), median(&p50), "ms", http(&http_p50), Goal::AtMost(20.0));
    summary.add(&name("p99"), median(&p99), "ms", http(&http_p99), Goal::AtMost(40.0));
    summary.add(&name("dead_tuples_per_round"), left, "", None, Goal::AtMost(1.0));
    Ok(())
}

/// Without a key they ask for the service's health: what is left is HTTP.
async fn one_herd(callers: &mut Vec<Client>, key: Option<&StoreKey>, random: &mut Random) -> Result<Samples> {
    let (release, released) = watch::channel(None::<Instant>);
    let waiting = Arc::new((std::sync::atomic::AtomicUsize::new(0), Notify::new()));
    let mut tasks = JoinSet::new();
    let count = callers.len();
    for mut caller in callers.drain(..) {
        let frame = key.map(|key| frames::claim(key, random, 0)).transpose()?.map(|(_, frame)| frame);
        let (mut released, waiting) = (released.clone(), Arc::clone(&waiting));
        tasks.spawn(async move {
            if waiting.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == count {
                waiting.1.notify_one();
            }
            let start = *released.wait_for(Option::is_some).await?;
            let won = match frame {
                Some(frame) => {
                    let reply = caller.frame(paths::CLAIMS, frame).await?;
                    matches!(frames::claimed(&reply)?, ClaimReply::Claimed { .. })
                }
                None => {
                    caller
                        .send(Request::get("/healthz").header("host", "store").body(Full::default())?)
                        .await?;
                    false
                }
            };
            anyhow::Ok((caller, start.context("released without a time")?.elapsed(), won))
        });
    }
    tokio::time::timeout(Duration::from_secs(60), waiting.1.notified()).await?;
    release.send_replace(Some(Instant::now()));
    let (mut samples, mut winners) = (Samples::default(), 0);
    while let Some(done) = tasks.join_next().await {
        let (caller, took, won) = done??;
        samples.add(took);
        winners += usize::from(won);
        callers.push(caller);
    }
    if winners != usize::from(key.is_some()) {
        bail!("{winners} callers hold one key");
    }
    Ok(samples)
}
