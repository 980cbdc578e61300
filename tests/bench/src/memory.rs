//! What stays: the proxy's, its VM's and the service's memory, and what the sweeper does to claims.

use crate::bed;
use crate::entries::{self, SMALL, fill, template};
use crate::envoys;
use crate::frames;
use crate::http::{Protocol, clients};
use crate::load;
use crate::random::Random;
use crate::summary::{Goal, Summary};
use crate::upstream;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fencepost_protocol::claims::ClaimReply;
use fencepost_protocol::paths;
use fencepost_rig::postgres::Postgres;
use http_body_util::Full;
use hyper::Request;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Requests through the proxy.
    pub requests: usize,
    /// Entries in the large table.
    pub entries: u64,
    /// Callers that wait at once.
    pub parked: usize,
    /// Rounds of which the median counts.
    pub rounds: usize,
}

/// Measures everything.
pub async fn run(summary: &mut Summary, server: &Postgres, effort: Effort) -> Result<()> {
    through_proxy(summary, server, effort).await?;
    parked(summary, server, effort).await?;
    entries::run(summary, server, effort).await?;
    sweeping(summary, server, effort).await
}

/// Requests of mixed sizes, new and replayed, from many connections.
async fn through_proxy(summary: &mut Summary, server: &Postgres, effort: Effort) -> Result<()> {
    let url = server.try_create_database().await?;
    let service = bed::service(&url, &[]).await?;
    let envoy = envoys::guarded(upstream::start().await?, service.addr()).await?;
    let mut after = Vec::new();
    for quarter in 0..4 {
        mixed_sizes(envoy.proxy(), quarter, effort.requests / 4).await?;
        let linear = bed::linear_memory("envoy")?;
        after.push((bed::resident("envoy")?, bed::resident("fencepost-store")?, linear));
    }
    let mib = |bytes: f64| bytes / 1048576.0;
    for (at, (proxy, service, linear)) in after.iter().enumerate() {
        let requests = effort.requests / 4 * (at + 1);
        summary.add(&format!("memory/envoy_after/{requests}"), mib(*proxy), "MiB", None, Goal::None);
        summary.add(&format!("memory/service_after/{requests}"), mib(*service), "MiB", None, Goal::None);
        summary.add(&format!("memory/vm_after/{requests}"), mib(*linear), "MiB", None, Goal::None);
    }
    if let [_, second, _, last] = after.as_slice() {
        // A leak grows with the requests; what is bounded has been reached by the half.
        let half = Some(("after half of the requests", mib(second.0)));
        summary.add("memory/envoy_growth", mib(last.0), "MiB", half, Goal::RatioAtMost(1.1));
        let half = Some(("after half of the requests", mib(second.1)));
        summary.add("memory/service_growth", mib(last.1), "MiB", half, Goal::RatioAtMost(1.1));
        let half = Some(("after half of the requests", mib(second.2)));
        summary.add("memory/vm_growth", mib(last.2), "MiB", half, Goal::RatioAtMost(1.1));
    }
    Ok(())
}

async fn mixed_sizes(addr: SocketAddr, quarter: usize, requests: usize) -> Result<()> {
    const CONNECTIONS: usize = 16;
    let bodies = [100, 1_000, 10_000, 100_000].map(|size| Bytes::from(crate::documents::reordered(size)));
    let mut tasks = JoinSet::new();
    for (worker, mut client) in
        clients(addr, Protocol::Http1, CONNECTIONS, CONNECTIONS).await?.into_iter().enumerate()
    {
        let bodies = bodies.clone();
        tasks.spawn(async move {
            let mut random = Random::new((quarter * CONNECTIONS + worker) as u64);
            for at in 0..requests / CONNECTIONS {
                // Most are small, as requests are; every fourth repeats the one before.
                let pick = random.below(100);
                let size = usize::from(pick > 60) + usize::from(pick > 90) + usize::from(pick > 98);
                let body = bodies.get(size).cloned().unwrap_or_default();
                let path = if at % 2 == 0 { "/pay" } else { "/detached" };
                let request = |key: &str| {
                    Request::post(path)
                        .header("host", "bench.example")
                        .header("content-type", "application/json")
                        .header("idempotency-key", key)
                        .header(upstream::SIZE, body.len())
                        .body(Full::new(body.clone()))
                };
                let key = format!("{quarter}-{worker}-{at}");
                for repeat in 0..1 + usize::from(at % 4 == 0) {
                    let answer = client.send(request(&key)?).await?;
                    if answer.status != 200 || answer.replayed != (repeat > 0) {
                        bail!("{} replayed: {}", answer.status, answer.replayed);
                    }
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// What a waiting caller costs the service.
async fn parked(summary: &mut Summary, server: &Postgres, effort: Effort) -> Result<()> {
    let url = server.try_create_database().await?;
    let service = bed::service(&url, &[]).await?;
    let mut random = Random::new(5);
    let keys: Vec<_> = (0..200).map(|number| frames::key(11, number)).collect::<Result<_>>()?;
    let mut holders = clients(service.addr(), Protocol::H2c, 16, 1).await?;
    let claims: Result<Vec<_>> = keys.iter().map(|key| Ok(frames::claim(key, &mut random, 0)?.1)).collect();
    load::frames(&mut holders, paths::CLAIMS, claims?).await?;
    let before = bed::resident("fencepost-store")?;
    let mut tasks = JoinSet::new();
    for (at, mut waiter) in
        clients(service.addr(), Protocol::H2c, effort.parked, 4).await?.into_iter().enumerate()
    {
        let key = keys.get(at % keys.len()).context("no key")?;
        let (_, frame) = frames::claim(key, &mut random, 2_000)?;
        tasks.spawn(async move { waiter.frame(paths::CLAIMS, frame).await });
    }
    let mut most = before;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_900) {
        most = most.max(bed::resident("fencepost-store")?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut in_progress = 0;
    while let Some(done) = tasks.join_next().await {
        let reply = frames::claimed(&done??)?;
        in_progress += usize::from(matches!(reply, ClaimReply::InProgress { .. }));
    }
    let each = (most - before) / effort.parked as f64;
    summary.add(&format!("memory/per_parked_caller/{}", effort.parked), each, "B", None, Goal::None);
    summary.add("memory/parked_callers_answered", in_progress as f64, "", None, Goal::None);
    Ok(())
}

/// How fast ended entries go, and what claims notice of it.
async fn sweeping(summary: &mut Summary, server: &Postgres, effort: Effort) -> Result<()> {
    let url = server.try_create_database().await?;
    let count = effort.entries.clamp(SMALL, 300_000);
    let first = bed::service(&url, &["--sweep-interval", "3600"]).await?;
    template(first.addr()).await?;
    let mut random = Random::new(9);
    let mut rate = async |addr: SocketAddr, callers: usize, claims: u64| -> Result<load::Load> {
        let mut workers = clients(addr, Protocol::H2c, callers, 2).await?;
        let set = random.next();
        let frames: Result<Vec<_>> = (0..claims)
            .map(|number| Ok(frames::claim(&frames::key(set, number)?, &mut random, 0)?.1))
            .collect();
        load::frames(&mut workers, paths::CLAIMS, frames?).await
    };
    rate(first.addr(), 16, 5_000).await?;
    let quiet = rate(first.addr(), 16, 20_000).await?;
    let inflow = rate(first.addr(), 256, 40_000).await?.rate();
    let database = bed::connect(&url).await?;
    let ended = "now() - interval '1 s'";
    fill(&database, 1, count, ended).await?;
    bed::tidy(&database).await?;
    first.stop().await?;
    let alone = bed::service(&url, &["--sweep-interval", "0.05"]).await?;
    let speed = swept(alone.addr(), count).await?;
    alone.stop().await?;
    let with = format!("new keys from 256 callers: {inflow:.0}/s");
    let ratio = Some(speed / inflow);
    summary.add_ratio("memory/sweep_rate", speed, "/s", &with, ratio, Goal::RatioAtLeast(2.0));
    fill(&database, count + 1, 2 * count, ended).await?;
    bed::tidy(&database).await?;
    let busy = bed::service(&url, &["--sweep-interval", "0.05"]).await?;
    let loud = rate(busy.addr(), 16, 20_000).await?;
    let base = quiet.samples.ms(99.0);
    let compared = Some(("without sweeping", base));
    summary.add(
        "memory/claim_p99_while_sweeping",
        loud.samples.ms(99.0),
        "ms",
        compared,
        Goal::RatioAtMost(1.1),
    );
    let compared = Some(("without sweeping", quiet.rate()));
    summary.add("memory/claim_rate_while_sweeping", loud.rate(), "/s", compared, Goal::None);
    Ok(())
}

/// Entries per second from the first that goes to the last.
async fn swept(addr: SocketAddr, count: u64) -> Result<f64> {
    let mut client = clients(addr, Protocol::Http1, 1, 1).await?.pop().context("no client")?;
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut begun: Option<(Instant, f64)> = None;
    while Instant::now() < deadline {
        let request = Request::get("/metrics").header("host", "store").body(Full::new(Bytes::new()))?;
        let text = client.send(request).await?;
        let text = String::from_utf8_lossy(&text.body).into_owned();
        let lines = text.lines().filter(|line| line.starts_with("fencepost_swept_total{"));
        let done: f64 = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        match begun {
            None if done > 0.0 => begun = Some((Instant::now(), done)),
            Some((since, already)) if done >= count as f64 => {
                return Ok((done - already) / since.elapsed().as_secs_f64());
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("the sweeper does not come to an end")
}
