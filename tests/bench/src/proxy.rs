//! Through Envoy with one worker: what the filter adds to a request.
//!
//! Costs are differences to the same Envoy doing the same hops without the filter, so that neither
//! the proxy's nor the service's own time counts as the filter's: a replay is compared with the
//! claim call sent through a plain Envoy, a new key with the upstream request and both store calls
//! sent through it.

use crate::bed;
use crate::frames;
use crate::http::{Client, Protocol, clients};
use crate::random::Random;
use crate::samples::{Samples, median};
use crate::summary::{Goal, Summary};
use crate::upstream;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fencepost_protocol::claims::ClaimReply;
use fencepost_protocol::paths;
use fencepost_rig::envoy::{Envoy, Route, STORE, Setup, loopback};
use fencepost_rig::postgres::Postgres;
use fencepost_rig::service::Service;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Body sizes of requests and answers.
const BODIES: [(&str, usize); 2] = [("1KiB", 1 << 10), ("64KiB", 64 << 10)];

/// Connections of the throughput curves.
const CURVE: [usize; 4] = [1, 4, 16, 64];

/// How long a measurement lasts, and how many of them.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Rounds of which the median counts.
    pub rounds: usize,
    /// One timed run.
    pub slice: Duration,
}

/// Everything that is compared.
struct Bench {
    plain: Envoy,
    guarded: Envoy,
    plain_pid: i32,
    guarded_pid: i32,
    _service: Service,
    keys: Arc<AtomicU64>,
}

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// To the upstream, no policy.
    Unguarded,
    /// Answered by Envoy itself.
    Direct,
    /// A guarded request whose key is new each time.
    NewKey,
    /// The same, detached.
    Detached,
    /// A guarded request that was answered before.
    Replay,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Unguarded => "/open",
            Self::Direct => "/direct",
            Self::NewKey | Self::Replay => "/pay",
            Self::Detached => "/detached",
        }
    }
}

/// The filter's configuration: one policy inline, one detached, both without a token to verify.
pub fn configuration() -> Value {
    let policy = |execution: Value| {
        json!({
            "namespace": "bench",
            "scope": [{"constant": {"value": "bench"}}],
            "max_run": "10s",
            "execution": execution,
        })
    };
    json!({
        "store": {"decide_cluster": STORE, "claim_cluster": fencepost_rig::envoy::STORE_WAITING, "timeout": "2s"},
        "key_prefix": "bench",
        "policies": {
            "inline": policy(json!("inline")),
            "detached": policy(json!({"detached": {"cluster": loopback::LOOPBACK, "loopback": true, "timeout": "15s"}})),
        },
    })
}

fn routes(setup: Setup) -> Setup {
    setup
        .route(Route::to("/v1/").cluster(STORE))
        .route(Route::to("/direct").extra("direct_response", json!({"status": 200})))
        .route(Route::guarded("/pay", "inline"))
        .route(Route::guarded("/detached", "detached"))
        .route(Route::to("/open"))
}

/// An Envoy with the filter.
pub async fn guarded(upstream: SocketAddr, store: SocketAddr) -> Result<Envoy> {
    Envoy::start(&routes(Setup::new(upstream).guarded(configuration(), store)).change(loopback::add)).await
}

/// The same without it.
async fn plain(upstream: SocketAddr, store: SocketAddr) -> Result<Envoy> {
    let mut setup = routes(Setup::new(upstream).guarded(json!({}), store)).change(loopback::add);
    setup.filter = None;
    Envoy::start(&setup).await
}

/// Measures everything.
pub async fn run(summary: &mut Summary, server: &Postgres, effort: Effort) -> Result<()> {
    let url = server.try_create_database().await?;
    let service = bed::service(&url, &[]).await?;
    let upstream = upstream::start().await?;
    let plain = plain(upstream, service.addr()).await?;
    let plain_pid = *bed::children("envoy")?.last().context("no Envoy")?;
    let guarded = guarded(upstream, service.addr()).await?;
    let found = bed::children("envoy")?.into_iter().rfind(|pid| *pid != plain_pid);
    let bench = Bench {
        plain,
        guarded,
        plain_pid,
        guarded_pid: found.context("no Envoy with the filter")?,
        keys: Arc::default(),
        _service: service,
    };
    for (size_name, size) in BODIES {
        costs(summary, &bench, size_name, size, effort).await?;
    }
    curves(summary, &bench, effort).await
}

/// Latencies at one connection, in turns.
async fn costs(
    summary: &mut Summary,
    bench: &Bench,
    size_name: &str,
    size: usize,
    effort: Effort,
) -> Result<()> {
    let (plain, guarded) = (bench.plain.proxy(), bench.guarded.proxy());
    let mut p50: [Vec<f64>; 9] = Default::default();
    for round in 0..=effort.rounds {
        let one = |addr, kind| bench.load(addr, kind, size, 1, effort.slice);
        let stores = store_calls(bench, size, effort.slice).await?;
        let found = [
            one(plain, Kind::Direct).await?.samples.us(50.0),
            one(plain, Kind::Unguarded).await?.samples.us(50.0),
            one(guarded, Kind::Unguarded).await?.samples.us(50.0),
            one(guarded, Kind::Replay).await?.samples.us(50.0),
            one(guarded, Kind::NewKey).await?.samples.us(50.0),
            one(guarded, Kind::Detached).await?.samples.us(50.0),
            stores[0].us(50.0),
            stores[1].us(50.0),
            stores[2].us(50.0),
        ];
        if round > 0 {
            p50.iter_mut().zip(found).for_each(|(all, one)| all.push(one));
        }
    }
    // Differences are taken within a round.
    let each = |f: &dyn Fn([f64; 9]) -> f64| {
        let rounds = (0..effort.rounds)
            .map(|round| f(p50.each_ref().map(|all| all.get(round).copied().unwrap_or(0.0))));
        median(&rounds.collect::<Vec<_>>())
    };
    let name = |what: &str| format!("envoy/{size_name}/{what}");
    let labels = [
        "direct",
        "no_filter",
        "unguarded",
        "replay",
        "new_key",
        "detached",
        "claim_new",
        "complete",
        "claim_replay",
    ];
    let base = median(&p50[1]);
    for (label, values) in labels.iter().zip(&p50) {
        summary.add(
            &name(&format!("{label}/p50")),
            median(values),
            "us",
            Some(("no filter", base)),
            Goal::None,
        );
    }
    let cost = |what: &str| name(&format!("filter_cost/{what}"));
    let passed = each(&|[_, plain, guarded, ..]| guarded - plain);
    summary.add(&cost("unguarded"), passed, "us", Some(("no filter", base)), Goal::None);
    let replay = each(&|p| p[3] - p[8]);
    summary.add(
        &cost("replay"),
        replay,
        "us",
        Some(("one store round trip", median(&p50[8]))),
        Goal::AtMost(60.0),
    );
    let hops = |p: [f64; 9]| p[1] + (p[6] - p[0]) + (p[7] - p[0]);
    let expected = each(&hops);
    let new_key = each(&|p| p[4] - hops(p));
    summary.add(
        &cost("new_key"),
        new_key,
        "us",
        Some(("its hops without the filter", expected)),
        Goal::AtMost(100.0),
    );
    let detached = each(&|p| p[5] - hops(p));
    summary.add(
        &cost("detached"),
        detached,
        "us",
        Some(("its hops without the filter", expected)),
        Goal::AtMost(200.0),
    );
    Ok(())
}

/// The store's calls through the plain Envoy, one at a time: a claim of a new key, its completion,
/// and a claim that is told the answer.
async fn store_calls(bench: &Bench, size: usize, slice: Duration) -> Result<[Samples; 3]> {
    let mut client = clients(bench.plain.proxy(), Protocol::Http1, 1, 1).await?.pop().context("no client")?;
    let mut samples: [Samples; 3] = Default::default();
    let mut random = Random::new(bench.keys.fetch_add(1, Ordering::Relaxed).wrapping_add(1 << 40));
    let start = Instant::now();
    while start.elapsed() < slice {
        let key = frames::key(random.next(), random.next())?;
        let (token, claim) = frames::claim(&key, &mut random, 0)?;
        let sent = Instant::now();
        let reply = client.frame(paths::CLAIMS, claim).await?;
        samples[0].add(sent.elapsed());
        let ClaimReply::Claimed { fence, .. } = frames::claimed(&reply)? else {
            bail!("a new key is not free")
        };
        let complete = frames::complete(&key, token, fence, size)?;
        let sent = Instant::now();
        client.frame(paths::COMPLETE, complete).await?;
        samples[1].add(sent.elapsed());
        let (_, claim) = frames::claim(&key, &mut random, 0)?;
        let sent = Instant::now();
        let reply = client.frame(paths::CLAIMS, claim).await?;
        samples[2].add(sent.elapsed());
        if !matches!(frames::claimed(&reply)?, ClaimReply::Completed { .. }) {
            bail!("a completed key is not replayed");
        }
    }
    Ok(samples)
}

/// Throughput by the number of connections.
async fn curves(summary: &mut Summary, bench: &Bench, effort: Effort) -> Result<()> {
    let (plain, guarded) = (bench.plain.proxy(), bench.guarded.proxy());
    for (size_name, size) in BODIES {
        for connections in CURVE {
            let mut rates: [Vec<f64>; 5] = Default::default();
            let mut cpus: [Vec<f64>; 5] = Default::default();
            let cells = [
                (plain, Kind::Unguarded),
                (guarded, Kind::Unguarded),
                (guarded, Kind::Replay),
                (guarded, Kind::NewKey),
                (guarded, Kind::Detached),
            ];
            for round in 0..=effort.rounds {
                for ((rates, cpus), (addr, kind)) in rates.iter_mut().zip(&mut cpus).zip(cells) {
                    let pid = if addr == plain { bench.plain_pid } else { bench.guarded_pid };
                    let before = bed::cpu_us(pid)?;
                    let load = bench.load(addr, kind, size, connections, effort.slice).await?;
                    if round > 0 {
                        rates.push(load.rate());
                        cpus.push((bed::cpu_us(pid)? - before) / load.samples.len() as f64);
                    }
                }
            }
            let base = median(&rates[0]);
            let labels = ["no_filter", "unguarded", "replay", "new_key", "detached"];
            for (label, values) in labels.iter().zip(&rates) {
                let ratios: Vec<_> = values.iter().zip(&rates[0]).map(|(ours, plain)| ours / plain).collect();
                let goal = if *label == "unguarded" { Goal::RatioAtLeast(0.97) } else { Goal::None };
                let name = format!("envoy/throughput/{size_name}/{connections}/{label}");
                let with = format!("no filter, {base:.0}/s");
                summary.add_ratio(&name, median(values), "/s", &with, Some(median(&ratios)), goal);
            }
            for (label, values) in labels.iter().zip(&cpus) {
                let ratios: Vec<_> = values.iter().zip(&cpus[0]).map(|(ours, plain)| ours / plain).collect();
                let goal = if *label == "unguarded" { Goal::RatioAtMost(1.0 / 0.97) } else { Goal::None };
                let name = format!("envoy/cpu/{size_name}/{connections}/{label}");
                let with = format!("no filter, {:.1} us", median(&cpus[0]));
                summary.add_ratio(&name, median(values), "us", &with, Some(median(&ratios)), goal);
            }
        }
    }
    let rss = bed::resident("fencepost-store")?;
    summary.add("envoy/service_memory_after", rss / 1048576.0, "MiB", None, Goal::None);
    Ok(())
}

impl Bench {
    /// Sends requests of one kind in closed loops for a while.
    async fn load(
        &self,
        addr: SocketAddr,
        kind: Kind,
        size: usize,
        connections: usize,
        slice: Duration,
    ) -> Result<crate::load::Load> {
        let mut senders = clients(addr, Protocol::Http1, connections, connections).await?;
        let body = Bytes::from(crate::documents::canonical(size));
        let replayed = format!("replay-{}", self.keys.fetch_add(1, Ordering::Relaxed));
        if kind == Kind::Replay
            && let Some(first) = senders.first_mut()
        {
            one(first, kind, size, &body, &replayed).await?;
        }
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for mut sender in senders {
            let (body, replayed, keys) = (body.clone(), replayed.clone(), Arc::clone(&self.keys));
            tasks.spawn(async move {
                let mut samples = Samples::default();
                while start.elapsed() < slice {
                    let key = match kind {
                        Kind::Replay => replayed.clone(),
                        _ => format!("key-{}", keys.fetch_add(1, Ordering::Relaxed)),
                    };
                    let sent = Instant::now();
                    let was_replay = one(&mut sender, kind, size, &body, &key).await?;
                    samples.add(sent.elapsed());
                    if was_replay != (kind == Kind::Replay) {
                        bail!("{kind:?}: replayed: {was_replay}");
                    }
                }
                anyhow::Ok(samples)
            });
        }
        let mut samples = Samples::default();
        while let Some(done) = tasks.join_next().await {
            samples.merge(done??);
        }
        Ok(crate::load::Load { samples, elapsed: start.elapsed() })
    }
}

/// Sends one request and says whether its answer was a replay.
async fn one(sender: &mut Client, kind: Kind, size: usize, body: &Bytes, key: &str) -> Result<bool> {
    // An answer that does not wait for the body would end the connection.
    let (method, body) = match kind {
        Kind::Direct => (Method::GET, Bytes::new()),
        _ => (Method::POST, body.clone()),
    };
    let request = Request::builder()
        .method(method)
        .uri(kind.path())
        .header("host", "bench.example")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .header(upstream::SIZE, size)
        .body(Full::new(body))?;
    let answer = sender.send(request).await.with_context(|| format!("{kind:?}"))?;
    if answer.status != StatusCode::OK {
        bail!("{kind:?}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    }
    Ok(answer.replayed)
}
