//! Through Envoy with one worker: what the filter adds to a request.
//!
//! Costs are differences to the same Envoy doing the same hops without the filter, so that neither
//! the proxy's nor the service's own time counts as the filter's: a replay is compared with the
//! claim call sent through a plain Envoy, a new key with the upstream request and both store calls
//! sent through it.

use crate::bed;
use crate::curves;
use crate::envoys::{self, Running};
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
use fencepost_rig::postgres::Postgres;
use fencepost_rig::service::Service;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Body sizes of requests and answers.
pub(crate) const BODIES: [(&str, usize); 2] = [("1KiB", 1 << 10), ("64KiB", 64 << 10)];

/// How long a measurement lasts, and how many of them.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Rounds of which the median counts.
    pub rounds: usize,
    /// One timed run.
    pub slice: Duration,
}

/// Everything that is compared.
pub(crate) struct Bench {
    pub plain: Running,
    pub guarded: Running,
    pub off: Running,
    /// None where its module was not built.
    pub noop: Option<Running>,
    /// The same module, calling the store; None as well.
    pub calls: Option<Running>,
    _service: Service,
    keys: Arc<AtomicU64>,
}

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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
    /// The store's health.
    Health,
    /// A filter that calls the store once and answers.
    FloorReplay,
    /// A filter that calls the store before and after it forwards.
    FloorNewKey,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Unguarded => "/open",
            Self::Direct => "/direct",
            Self::NewKey | Self::Replay => "/pay",
            Self::Detached => "/detached",
            Self::Health => "/healthz",
            Self::FloorReplay => "/floor/replay",
            Self::FloorNewKey => "/floor/new-key",
        }
    }
}

/// Measures everything.
pub async fn run(summary: &mut Summary, server: &Postgres, noop: &Path, effort: Effort) -> Result<()> {
    let url = server.try_create_database().await?;
    let service = bed::service(&url, &[]).await?;
    let (upstream, store) = (upstream::start().await?, service.addr());
    let bench = Bench {
        plain: Running::start(envoys::plain(upstream, store)).await?,
        guarded: Running::start(envoys::guarded(upstream, store)).await?,
        off: Running::start(envoys::off_by_default(upstream, store)).await?,
        noop: match noop.is_file() {
            true => Some(Running::start(envoys::noop(upstream, store, noop)).await?),
            false => None,
        },
        calls: match noop.is_file() {
            true => Some(Running::start(envoys::calls(upstream, store, noop)).await?),
            false => None,
        },
        keys: Arc::default(),
        _service: service,
    };
    if bench.noop.is_none() {
        summary.skip("envoy/noop", &format!("{} is not there", noop.display()));
    }
    if let Some(calls) = &bench.calls {
        floors(summary, &bench, calls.proxy(), effort).await?;
    }
    for (size_name, size) in BODIES {
        costs(summary, &bench, size_name, size, effort).await?;
    }
    curves::run(summary, &bench, effort).await
}

/// What the host's part of the calls costs at one connection: a filter that calls the store's health
/// and reads nothing, less the same hops without a filter.
async fn floors(summary: &mut Summary, bench: &Bench, calls: SocketAddr, effort: Effort) -> Result<()> {
    let plain = bench.plain.proxy();
    let (mut replay, mut new_key) = (Vec::new(), Vec::new());
    for round in 0..=effort.rounds {
        let one = async |addr, kind| {
            anyhow::Ok(bench.load(addr, kind, BODIES[0].1, 1, effort.slice).await?.samples.us(50.0))
        };
        let (direct, open) = (one(plain, Kind::Direct).await?, one(plain, Kind::Unguarded).await?);
        let health = one(plain, Kind::Health).await?;
        let found = (one(calls, Kind::FloorReplay).await?, one(calls, Kind::FloorNewKey).await?);
        if round > 0 {
            replay.push(found.0 - health);
            new_key.push(found.1 - open - 2.0 * (health - direct));
        }
    }
    for (name, values, with) in [
        ("envoy/1KiB/floor/replay", &replay, "one store round trip"),
        ("envoy/1KiB/floor/new_key", &new_key, "its hops without the filter"),
    ] {
        summary.add_ratio(name, median(values), "us", with, None, Goal::None);
    }
    Ok(())
}

/// Latencies at one connection, in turns.
async fn costs(
    summary: &mut Summary,
    bench: &Bench,
    size_name: &str,
    size: usize,
    effort: Effort,
) -> Result<()> {
    let (plain, guarded, off) = (bench.plain.proxy(), bench.guarded.proxy(), bench.off.proxy());
    let mut p50: [Vec<f64>; 10] = Default::default();
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
            one(off, Kind::Unguarded).await?.samples.us(50.0),
        ];
        if round > 0 {
            p50.iter_mut().zip(found).for_each(|(all, one)| all.push(one));
        }
    }
    // Differences are taken within a round.
    let each = |f: &dyn Fn([f64; 10]) -> f64| {
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
        "off_by_default",
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
    let off = each(&|p| p[9] - p[1]);
    summary.add(&cost("off_by_default"), off, "us", Some(("no filter", base)), Goal::None);
    let replay = each(&|p| p[3] - p[8]);
    summary.add(
        &cost("replay"),
        replay,
        "us",
        Some(("one store round trip", median(&p50[8]))),
        Goal::AtMost(60.0),
    );
    let hops = |p: [f64; 10]| p[1] + (p[6] - p[0]) + (p[7] - p[0]);
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

impl Bench {
    /// Sends requests of one kind in closed loops for a while.
    pub(crate) async fn load(
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
        Kind::Direct | Kind::Health => (Method::GET, Bytes::new()),
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
