//! Callers that wait for another's answer: from its completion to their replay.

use crate::bed;
use crate::frames;
use crate::http::{Protocol, clients};
use crate::random::Random;
use crate::samples::{Samples, median};
use crate::summary::{Goal, Summary};
use anyhow::{Context, Result, bail};
use fencepost_protocol::claims::ClaimReply;
use fencepost_protocol::paths;
use fencepost_rig::postgres::Postgres;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const KEYS: usize = 100;
const WAITERS: usize = 1_000;

/// Long enough for all waiters to be parked when the first answer comes.
const SETTLE: Duration = Duration::from_millis(600);

/// Between completions, so that each is seen alone.
const SPACING: Duration = Duration::from_millis(8);

/// Measures everything.
pub async fn run(summary: &mut Summary, server: &Postgres, rounds: usize) -> Result<()> {
    let url = server.try_create_database().await?;
    let instances = [bed::service(&url, &[]).await?, bed::service(&url, &[]).await?];
    let addrs = instances.each_ref().map(fencepost_rig::service::Service::addr);
    let mut random = Random::new(3);
    for (how, spacing) in [("spaced", SPACING), ("all_at_once", Duration::ZERO)] {
        let mut places: [(Vec<f64>, Vec<f64>); 3] = Default::default();
        for round in 0..=rounds {
            let [own, other] = one_round(addrs, spacing, &mut random).await?;
            let mut all = own.clone();
            all.merge(other.clone());
            for ((p50, p99), samples) in places.iter_mut().zip([&all, &own, &other]) {
                if round > 0 {
                    p50.push(samples.ms(50.0));
                    p99.push(samples.ms(99.0));
                }
            }
        }
        for ((p50, p99), place) in places.iter().zip(["all", "same_instance", "other_instance"]) {
            let goals = if (how, place) == ("spaced", "all") {
                [Goal::AtMost(5.0), Goal::AtMost(20.0)]
            } else {
                [Goal::None, Goal::None]
            };
            for (what, values, goal) in [("p50", p50, goals[0]), ("p99", p99, goals[1])] {
                let name = format!("waiters/1000_over_100/{how}/{place}/{what}");
                summary.add(&name, median(values), "ms", Some(("polling every 2 s", 2_000.0)), goal);
            }
        }
    }
    Ok(())
}

/// All keys are claimed through the first instance and waited for through both.
async fn one_round(
    addrs: [std::net::SocketAddr; 2],
    spacing: Duration,
    random: &mut Random,
) -> Result<[Samples; 2]> {
    let set = random.next();
    let completed: Arc<Vec<Mutex<Option<Instant>>>> = Arc::new((0..KEYS).map(|_| Mutex::default()).collect());
    let mut holder = clients(addrs[0], Protocol::H2c, 1, 1).await?.pop().context("no client")?;
    let mut answers = Vec::new();
    for number in 0..KEYS {
        let key = frames::key(set, number as u64)?;
        let (token, claim) = frames::claim(&key, random, 0)?;
        let ClaimReply::Claimed { fence, .. } = frames::claimed(&holder.frame(paths::CLAIMS, claim).await?)?
        else {
            bail!("a new key is not free");
        };
        answers.push(frames::complete(&key, token, fence, 512)?);
    }
    let mut tasks = JoinSet::new();
    for (instance, addr) in addrs.into_iter().enumerate() {
        let waiters = clients(addr, Protocol::H2c, WAITERS / 2, 2).await?;
        for (at, mut waiter) in waiters.into_iter().enumerate() {
            let number = at % KEYS;
            let (_, claim) = frames::claim(&frames::key(set, number as u64)?, random, 2_000)?;
            let completed = Arc::clone(&completed);
            tasks.spawn(async move {
                let reply = waiter.frame(paths::CLAIMS, claim).await?;
                let now = Instant::now();
                let outcome = frames::claimed(&reply)?;
                if !matches!(outcome, ClaimReply::Completed { .. }) {
                    bail!("a waiter was told {outcome:?}");
                }
                let place = completed.get(number).context("no such key")?;
                let sent = place.lock().unwrap_or_else(PoisonError::into_inner);
                Ok((instance, now.duration_since(sent.context("replayed before it was completed")?)))
            });
        }
    }
    tokio::time::sleep(SETTLE).await;
    let mut holders = clients(addrs[0], Protocol::H2c, KEYS, 1).await?;
    let mut completions = JoinSet::new();
    for (number, (mut holder, answer)) in holders.drain(..).zip(answers).enumerate() {
        if let Some(place) = completed.get(number) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        completions.spawn(async move { holder.frame(paths::COMPLETE, answer).await.map(drop) });
        if !spacing.is_zero() {
            tokio::time::sleep(spacing).await;
        }
    }
    while let Some(done) = completions.join_next().await {
        done??;
    }
    let mut samples: [Samples; 2] = Default::default();
    while let Some(done) = tasks.join_next().await {
        let (instance, took) = done??;
        if let Some(samples) = samples.get_mut(instance) {
            samples.add(took);
        }
    }
    Ok(samples)
}
