//! A campaign: clients at work, faults by a schedule, and a judgement at the end.

use crate::checker::check;
use crate::client::{Notebook, wish_on};
use crate::history::{End, Told};
use crate::schedule::{Schedule, Step};
use crate::world::{Plan, World};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients at once.
const CLIENTS: usize = 6;

/// What a campaign did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Faults that struck.
    pub faults: usize,
    /// Keys and operations.
    pub subjects: usize,
    /// Attempts of clients.
    pub attempts: usize,
    /// Subjects whose answer is kept.
    pub answered: usize,
    /// Subjects of which nobody knows.
    pub unknown: usize,
    /// Attempts that were refused or broken off.
    pub not_served: usize,
    /// The same by status and code, the most frequent first.
    pub refusals: Vec<(String, usize)>,
    /// How often each kind of fault struck.
    pub struck: BTreeMap<String, usize>,
}

/// Runs for so long, faults included, then settles and judges. An error names the seed.
pub async fn run(seed: u64, lasts: Duration) -> Result<Report> {
    eprintln!("faults: seed {seed}; again: make faults ARGS=\"--seed {seed} --seconds {}\"", lasts.as_secs());
    let world = World::start(Plan { standby: true, ..Plan::default() }).await?;
    let world = Arc::new(world);
    let notebook = Arc::new(Notebook::default());
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (world, notebook, stop) = (Arc::clone(&world), Arc::clone(&notebook), Arc::clone(&stop));
            tokio::spawn(async move { wish_on(&world, &notebook, &stop, seed, number).await })
        })
        .collect();
    let began = Instant::now();
    let mut steps = Vec::new();
    for step in Schedule::of(seed) {
        if began.elapsed() > lasts {
            break;
        }
        eprintln!("faults: {:>6.1} s: {step}", began.elapsed().as_secs_f64());
        strike(&world, &step).await.with_context(|| format!("seed {seed}: {step}"))?;
        steps.push(step);
    }
    stop.store(true, Ordering::SeqCst);
    let mut wishes = Vec::new();
    for client in clients {
        wishes.extend(client.await?);
    }
    world.settle(&wishes, &notebook).await?;
    let history = notebook.open().clone();
    let violations = check(&history);
    if !violations.is_empty() {
        for violation in &violations {
            eprintln!("faults: {violation:?}");
        }
        let ran: Vec<_> = history.records.iter().filter(|(_, record)| record.executions > 1).collect();
        bail!("seed {seed}: {} promises are broken: {violations:#?}\n{ran:#?}", violations.len());
    }
    let told = || history.records.values().flat_map(|record| &record.told);
    let ends = |is: fn(&End) -> bool| {
        history.records.values().filter(|one| one.end.as_ref().is_some_and(is)).count()
    };
    Ok(Report {
        faults: steps.iter().map(|step| step.faults.len()).sum(),
        subjects: history.records.len(),
        attempts: told().count(),
        answered: ends(|end| matches!(end, End::Answered(_))),
        unknown: ends(|end| *end == End::Unknown),
        not_served: told().filter(|told| !matches!(told, Told::Answer { .. })).count(),
        refusals: history.refusals(),
        struck: steps.iter().flat_map(|step| &step.faults).fold(BTreeMap::new(), |mut struck, fault| {
            *struck.entry(fault.kind()).or_default() += 1;
            struck
        }),
    })
}

async fn strike(world: &World, step: &Step) -> Result<()> {
    tokio::time::sleep(step.after).await;
    for fault in &step.faults {
        fault.strike(world).await?;
    }
    tokio::time::sleep(step.lasts).await;
    // What is around the database first: mending that waits for its standby.
    for fault in step.faults.iter().rev() {
        fault.heal(world).await?;
    }
    Ok(())
}
